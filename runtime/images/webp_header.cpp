// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/webp_header.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/images/orientation.hpp"

namespace maestro {

namespace {

constexpr unsigned has_animation = 0x02, has_exif = 0x08;

Error corrupt(std::string reason) {
  return {ErrorCode::corrupt, std::move(reason)};
}

struct Chunk {
  std::string name;
  std::int64_t bytes = 0;
  /// Returns the bytes with the padding to an even number.
  [[nodiscard]] std::int64_t room() const { return bytes + bytes % 2; }
};

/// Returns the next bytes of the stream; fewer if it ends earlier.
std::string next_bytes(std::istream& stream, std::int64_t count) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  stream.read(bytes.data(), count);
  bytes.resize(static_cast<std::size_t>(stream.gcount()));
  return bytes;
}

std::int64_t little_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (std::size_t at = bytes.size(); at > 0; --at) value = value << 8 | static_cast<unsigned char>(bytes[at - 1]);
  return value;
}

std::optional<Chunk> next_chunk(std::istream& stream) {
  const std::string head = next_bytes(stream, 8);
  if (head.size() < 8) return std::nullopt;
  return Chunk{head.substr(0, 4), little_endian(std::string_view(head).substr(4))};
}

/// Returns the orientation in the file's EXIF chunk, one of the chunks after the first.
int orientation_behind(std::istream& stream) {
  while (const std::optional<Chunk> chunk = next_chunk(stream)) {
    if (chunk->name != "EXIF") {
      stream.seekg(chunk->room(), std::ios::cur);
      continue;
    }
    return exif_orientation(next_bytes(stream, std::min(chunk->bytes, largest_exif)));
  }
  return as_stored;
}

}  // namespace

Result<WebpHeader> webp_header(std::istream& stream) {
  const Error ended = corrupt("truncated: the file ends inside its WebP header");
  const std::optional<Chunk> chunk = next_chunk(stream);
  if (!chunk) return ended;
  const bool extended = chunk->name == "VP8X", lossless = chunk->name == "VP8L";
  if (!extended && !lossless && chunk->name != "VP8 ") return corrupt("broken: its first WebP chunk is not a header");
  const std::string head = next_bytes(stream, lossless ? 5 : 10);
  if (head.size() < (lossless ? 5U : 10U)) return ended;
  const std::string_view bytes = head;
  if (lossless) {
    const std::int64_t sides = little_endian(bytes.substr(1));  // 14 bits each, less 1
    if (bytes[0] != '\x2f') return corrupt("broken: its WebP data lack a signature");
    return WebpHeader{{(sides & 0x3fff) + 1, (sides >> 14 & 0x3fff) + 1}, as_stored};
  }
  if (!extended) {
    if (bytes.substr(3, 3) != "\x9d\x01\x2a") return corrupt("broken: its WebP data lack a start code");
    const auto side = [&](std::size_t at) { return little_endian(bytes.substr(at, 2)) & 0x3fff; };
    return WebpHeader{{side(6), side(8)}, as_stored};
  }
  const auto flags = static_cast<unsigned char>(bytes[0]);
  if ((flags & has_animation) != 0) {
    return Error{ErrorCode::invalid_argument, "an animation; give its images as separate files"};
  }
  WebpHeader header{{little_endian(bytes.substr(4, 3)) + 1, little_endian(bytes.substr(7, 3)) + 1}, as_stored};
  stream.seekg(chunk->room() - 10, std::ios::cur);
  if ((flags & has_exif) != 0) header.orientation = orientation_behind(stream);
  return header;
}

}  // namespace maestro
