// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/image.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <streambuf>
#include <system_error>

#include "runtime/images/image_codecs.hpp"
#include "runtime/images/orientation.hpp"
#include "runtime/images/webp_header.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view png_signature("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view jpeg_signature("\xff\xd8\xff", 3);
constexpr std::string_view riff_signature("RIFF", 4);
constexpr std::string_view webp_signature("WEBP", 4);  // follows "RIFF" and a length
constexpr std::size_t longest_signature = 12;

enum class Format { png, jpeg, webp };

struct Header {
  Format format = Format::png;
  ImageSize size;  ///< size before the orientation is applied
  int orientation = as_stored;
};

Error corrupt(std::string reason) {
  return {ErrorCode::corrupt, std::move(reason)};
}

Error about(const fs::path& file, const Error& error) {
  return {error.code, file.string() + ": " + error.message};
}

/// Reads the next bytes of the stream; returns nothing if it ends earlier.
template <std::size_t count>
std::optional<std::array<unsigned char, count>> next_bytes(std::istream& stream) {
  std::array<char, count> raw{};
  if (!stream.read(raw.data(), count)) return std::nullopt;
  std::array<unsigned char, count> bytes{};
  for (std::size_t at = 0; at < count; ++at) bytes[at] = static_cast<unsigned char>(raw[at]);
  return bytes;
}

std::int64_t big_endian(const unsigned char* bytes, int count) {
  std::int64_t value = 0;
  for (int at = 0; at < count; ++at) value = value << 8 | bytes[at];
  return value;
}

/// Returns the next `count` bytes of the stream; fewer if it ends earlier.
std::string block_of(std::istream& stream, std::int64_t count) {
  std::string block(static_cast<std::size_t>(count), '\0');
  stream.read(block.data(), count);
  block.resize(static_cast<std::size_t>(stream.gcount()));
  return block;
}

/// Returns the orientation in the file's eXIf chunk (PNG specification, third edition, 11.3.4.5), which may precede or
/// follow the pixels.
int png_orientation(std::istream& stream) {
  constexpr std::int64_t end = 0x49454e44, exif = 0x65584966, checksum = 4;
  while (const auto head = next_bytes<8>(stream)) {
    const std::int64_t length = big_endian(head->data(), 4), kind = big_endian(head->data() + 4, 4);
    if (kind == exif) return exif_orientation(block_of(stream, std::min(length, largest_exif)));
    if (kind == end) break;
    stream.seekg(length + checksum, std::ios::cur);
  }
  return as_stored;
}

/// Reads a PNG header. PNG specification, 11.2.2: the first chunk is IHDR with 13 bytes, beginning with width and
/// height.
Result<Header> png_header(std::istream& stream) {
  const auto chunk = next_bytes<16>(stream);
  if (!chunk) return corrupt("truncated: the file ends inside its PNG header");
  if (big_endian(chunk->data() + 4, 4) != 0x49484452) return corrupt("broken: its first PNG chunk is not a header");
  stream.seekg(13 - 8 + 4, std::ios::cur);
  return Header{
      Format::png, {big_endian(chunk->data() + 8, 4), big_endian(chunk->data() + 12, 4)}, png_orientation(stream)};
}

/// Returns whether the marker starts a frame header, which has the size: ITU-T T.81, table B.1 (SOF0 to SOF15 without
/// DHT, JPG and DAC).
bool starts_frame(int marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/// Reads an application segment of `count` bytes; returns the orientation if the segment is an EXIF block.
std::optional<int> orientation_in(std::istream& stream, std::int64_t count) {
  constexpr std::string_view mark("Exif\0\0", 6);
  const std::string segment = block_of(stream, count);
  if (!segment.starts_with(mark)) return std::nullopt;
  return exif_orientation(segment);
}

Result<Header> jpeg_header(std::istream& stream) {
  const Error ended = corrupt("truncated: the file ends inside its JPEG header");
  std::optional<int> orientation;  // from the first EXIF block
  while (true) {
    int byte = stream.get();
    while (stream && byte != 0xff) byte = stream.get();  // decoders skip bytes between segments
    while (stream && byte == 0xff) byte = stream.get();  // a marker may be filled up with 0xff
    if (!stream) return ended;
    const bool alone = byte == 0x00 || byte == 0x01 || (byte >= 0xd0 && byte <= 0xd8);
    if (alone) continue;
    if (byte == 0xd9 || byte == 0xda) return corrupt("broken: no size before the JPEG data");
    if (starts_frame(byte)) {
      const auto frame = next_bytes<7>(stream);  // length, precision, height, width
      if (!frame) return ended;
      const ImageSize size{big_endian(frame->data() + 5, 2), big_endian(frame->data() + 3, 2)};
      return Header{Format::jpeg, size, orientation.value_or(as_stored)};
    }
    const auto length = next_bytes<2>(stream);
    if (!length) return ended;
    const std::int64_t count = std::max<std::int64_t>(big_endian(length->data(), 2) - 2, 0);
    const bool application_1 = byte == 0xe1;
    if (application_1 && !orientation) {
      orientation = orientation_in(stream, count);
    } else {
      stream.seekg(count, std::ios::cur);
    }
  }
}

Status check(ImageSize size) {
  if (size.width == 0 || size.height == 0) return corrupt("the image has no pixels");
  if (size.width > largest_image_side || size.height > largest_image_side) {
    return Error{ErrorCode::invalid_argument, "too large: " + std::to_string(size.width) + " x " +
                                                  std::to_string(size.height) + " pixels; the most is " +
                                                  std::to_string(largest_image_side) + " a side"};
  }
  if (size.width * size.height > largest_image_pixels) {
    return Error{ErrorCode::invalid_argument, "too large: " + std::to_string(size.width) + " x " +
                                                  std::to_string(size.height) + " pixels; the most is " +
                                                  std::to_string(largest_image_pixels) + " in all"};
  }
  return {};
}

/// Returns the format that the first bytes of a file show; nothing for any other file.
std::optional<Format> format_of(std::string_view start) {
  if (start.starts_with(png_signature)) return Format::png;
  if (start.starts_with(jpeg_signature)) return Format::jpeg;
  if (start.starts_with(riff_signature) && start.ends_with(webp_signature)) return Format::webp;
  return std::nullopt;
}

/// Returns whether `start` could be the beginning of an image that was truncated.
bool is_cut(std::string_view start) {
  const bool riff = start.size() < longest_signature && riff_signature.starts_with(start.substr(0, 4));
  return png_signature.starts_with(start) || jpeg_signature.starts_with(start) || riff;
}

Result<Header> header_of(Format format, std::istream& stream) {
  if (format == Format::png) return png_header(stream);
  if (format == Format::jpeg) return jpeg_header(stream);
  const Result<WebpHeader> header = webp_header(stream);
  if (!header) return header.error();
  return Header{format, header->size, header->orientation};
}

Result<Header> read_header(std::istream& stream) {
  std::array<char, longest_signature> raw{};
  stream.read(raw.data(), raw.size());
  const std::string_view start(raw.data(), static_cast<std::size_t>(stream.gcount()));
  stream.clear();
  if (start.empty()) return corrupt("the file is empty");
  const std::optional<Format> format = format_of(start);
  if (!format) {
    if (is_cut(start)) return corrupt("truncated: only " + std::to_string(start.size()) + " bytes of an image");
    return corrupt("not an image: neither PNG nor JPEG nor WebP");
  }
  constexpr std::array<std::int64_t, 3> headers{8, 2, longest_signature};  // JPEG: at the first segment's marker
  stream.seekg(headers[static_cast<std::size_t>(*format)]);
  const auto header = header_of(*format, stream);
  if (!header) return header.error();
  if (const Status fine = check(header->size); !fine) return fine.error();
  return header;
}

Result<Image> decoded(Format format, std::string_view bytes) {
  if (format == Format::png) return decode_png(bytes);
  return format == Format::jpeg ? decode_jpeg(bytes) : decode_webp(bytes);
}

Result<std::ifstream> open(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) {
    return Error{ErrorCode::invalid_argument, "a folder, not an image"};
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (stream) return stream;
  const int cause = errno;
  if (cause == ENOENT || cause == ENOTDIR) return Error{ErrorCode::not_found, "does not exist"};
  return Error{ErrorCode::unavailable, "cannot be read: " + std::generic_category().message(cause)};
}

Result<Image> decode(std::string_view bytes, const Header& header) {
  auto image = decoded(header.format, bytes);
  if (!image) return image.error();
  if (image->size() != header.size) return corrupt("broken: the file states two different sizes");
  return upright(*std::move(image), header.orientation);
}

Result<Image> decode(const fs::path& file) {
  auto stream = open(file);
  if (!stream) return stream.error();
  const auto header = read_header(*stream);
  if (!header) return header.error();
  stream->clear();
  stream->seekg(0);
  std::ostringstream bytes;
  bytes << stream->rdbuf();
  if (!bytes || stream->bad()) return Error{ErrorCode::unavailable, "cannot be read: read error"};
  return decode(bytes.view(), *header);
}

/// Stream buffer that reads bytes in memory.
class ViewBuffer final : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view bytes) {
    char* begin = const_cast<char*>(bytes.data());  // NOLINT: a get area is never written to
    setg(begin, begin, begin + bytes.size());
  }

 private:
  pos_type seekoff(off_type offset, std::ios::seekdir from, std::ios::openmode /*which*/) override {
    const off_type base = from == std::ios::beg ? 0 : (from == std::ios::cur ? gptr() : egptr()) - eback();
    if (base + offset < 0 || base + offset > egptr() - eback()) return pos_type(off_type(-1));
    setg(eback(), eback() + base + offset, egptr());
    return pos_type(base + offset);
  }
  pos_type seekpos(pos_type position, std::ios::openmode which) override {
    return seekoff(off_type(position), std::ios::beg, which);
  }
};

Result<Header> read_header(std::string_view bytes) {
  ViewBuffer buffer(bytes);
  std::istream stream(&buffer);
  return read_header(stream);
}

}  // namespace

std::uint8_t on_white(unsigned colour, unsigned alpha) {
  return static_cast<std::uint8_t>((colour * alpha + 255 * (255 - alpha) + 127) / 255);
}

void make_room(std::vector<std::uint8_t>& pixels, std::size_t count, std::size_t whole) {
  constexpr std::size_t at_once = std::size_t{16} << 20;
  if (pixels.capacity() - pixels.size() >= count) return;
  // The last step starts from at most half of the bytes: old bytes and their copies together never exceed the total.
  const std::size_t next = std::max(at_once, 2 * pixels.capacity());
  pixels.reserve(std::max(pixels.size() + count, 2 * next > whole ? whole : next));
}

namespace {

/// Returns the result of `decode`; its error gets the image's `name`.
template <class Decode>
Result<Image> named(const fs::path& name, Decode decode) {
  try {
    auto image = decode();
    if (!image) return about(name, image.error());
    return image;
  } catch (const std::bad_alloc&) {  // only this file fails; others may fit
    return about(name, {ErrorCode::unavailable, "cannot be decoded: out of memory"});
  }
}

}  // namespace

Result<Image> decode_image(const fs::path& file) {
  return named(file, [&] { return decode(file); });
}

Result<Image> decode_image(std::string_view bytes, const std::string& name) {
  return named(name, [&]() -> Result<Image> {
    const auto header = read_header(bytes);
    return header ? decode(bytes, *header) : header.error();
  });
}

Result<ImageSize> image_size(std::string_view bytes, const std::string& name) {
  const auto header = read_header(bytes);
  if (!header) return about(name, header.error());
  return upright(header->size, header->orientation);
}

Result<ImageSize> image_size(const fs::path& file) {
  auto stream = open(file);
  if (!stream) return about(file, stream.error());
  const auto header = read_header(*stream);
  if (!header) return about(file, header.error());
  return upright(header->size, header->orientation);
}

bool size_stands_first(std::string_view start) {
  return start.starts_with(jpeg_signature);
}

}  // namespace maestro
