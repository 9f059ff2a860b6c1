// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/row_image.hpp"

#include <array>
#include <system_error>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

bool is_absent(const json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

std::string noun_of(const RowMedia& media) {
  return std::string(media.medium.noun);
}
std::string one_of(const RowMedia& media) {
  return maestro::one_of(media.medium);
}

/// Returns the command that downloads a URL into the folder of images.
std::string download(const std::string& url) {
  const std::string path = url.substr(0, url.find_first_of("?#"));
  const std::size_t slash = path.find_last_of('/');
  const std::string last = path.substr(slash + 1);
  return "curl -L --create-dirs -o images/" + (slash < 8 || last.empty() ? "NAME" : last) + " " + url;
}

Result<std::string> data_uri(std::string_view text, const std::string& where) {
  const std::size_t comma = text.find(',');
  const std::string_view head = text.substr(0, comma);
  if (comma == text.npos || !head.ends_with(";base64")) {
    return wrong(where + " is a data URI of another form than data:image/png;base64,...");
  }
  Result<std::string> bytes = decode_base64(text.substr(comma + 1));
  if (!bytes) return wrong(where + ": " + bytes.error().message);
  return bytes;
}

Result<RowImage> from_text(const std::string& text, const std::string& where, const RowMedia& media) {
  if (text.starts_with("http://") || text.starts_with("https://")) {
    return wrong(where + " is the URL " + shown(text) + "; " + noun_of(media) +
                 "s are not downloaded here: " + printable(download(text)) + ", and name the file");
  }
  RowImage made;
  if (text.starts_with("data:")) {
    Result<std::string> bytes = data_uri(text, where);
    if (!bytes) return bytes.error();
    made.content = *std::move(bytes);
    return made;
  }
  made.name = text.starts_with("file://") ? text.substr(7) : text;
  if (made.name.empty()) return wrong(where + " is an empty path");
  return made;
}

Result<std::string> bytes_of(const json& value, const std::string& where, RowMedia& media) {
  if (value.is_number_unsigned() && value.get<std::size_t>() < media.blobs.size()) {
    return std::move(media.blobs[value.get<std::size_t>()]);
  }
  if (!value.is_string()) return wrong(where + " is " + shown(value) + "; it must be base64");
  Result<std::string> bytes = decode_base64(value.get_ref<const std::string&>());
  if (!bytes) return wrong(where + ": " + bytes.error().message);
  return bytes;
}

Result<RowImage> from_object(const json& value, const std::string& where, RowMedia& media) {
  RowImage made;
  bool given = false;
  for (const auto& [key, each] : value.items()) {
    const std::string place = where + "." + printable(key);
    if (is_absent(each)) continue;
    if (key == "bytes" || key == "base64") {
      Result<std::string> bytes = bytes_of(each, place, media);
      if (!bytes) return bytes.error();
      made.content = *std::move(bytes);
    } else if (key == "path" || key == "url" || key == media.medium.type) {
      if (given) return wrong(where + " names two " + noun_of(media) + "s: " + shown(value));
      given = true;
      Result<RowImage> inner = read_row_image(each, place, media);
      if (!inner) return inner.error();
      made.name = inner->name;
      if (made.content.empty()) made.content = std::move(inner->content);
    } else if (key != "detail") {
      return wrong(place + " is not known; " + one_of(media) + " has bytes, base64, path, url or " +
                   std::string(media.medium.type));
    }
  }
  if (made.name.empty() && made.content.empty())
    return wrong(where + " is " + shown(value) + ", without " + one_of(media));
  return made;
}

}  // namespace

namespace {

Result<RowImage> read_value(const json& value, const std::string& where, RowMedia& media) {
  if (value.is_string()) return from_text(value.get_ref<const std::string&>(), where, media);
  if (value.is_object()) return from_object(value, where, media);
  if (value.is_number_unsigned() && value.get<std::size_t>() < media.blobs.size()) {
    RowImage made;
    made.content = std::move(media.blobs[value.get<std::size_t>()]);
    return made;
  }
  return wrong(where + " is " + shown(value) + "; " + one_of(media) + " is a path, or an object with bytes or path");
}

}  // namespace

Result<RowImage> read_row_image(const json& value, const std::string& where, RowMedia& media) {
  Result<RowImage> image = read_value(value, where, media);
  if (image) image->modality = media.medium.modality;
  return image;
}

Result<FoundImage> find_image(const RowImage& image, const fs::path& folder, const fs::path& archive, Media read) {
  const Medium& medium = medium_of(image.modality);
  if (!image.content.empty()) {
    const std::string name = image.name.empty() ? "the " + std::string(medium.noun) : printable(image.name);
    const Result<ImageSize> size = media_size(image.content, name, medium, read);
    if (!size) return size.error();
    return FoundImage{*size, image.content.size()};
  }
  if (!image.member) {
    const fs::path path = folder / image.name;
    const Result<ImageSize> size = media_size(path, medium, read);
    if (!size) return size.error();
    std::error_code failure;
    const std::uintmax_t bytes = fs::file_size(path, failure);
    if (failure) return Error{ErrorCode::not_found, printable(path.string()) + ": " + failure.message()};
    return FoundImage{*size, bytes};
  }
  const std::string name = printable(archive.string() + ": " + image.member->name);
  if (!image.member->position) {
    return wrong(printable(archive.string()) + " is compressed, so its " + std::string(medium.noun) +
                 "s cannot be read one at a time; decompress it");
  }
  Result<ImageSize> size = media_size(image.member->head, name, medium, read);
  if (image.member->bytes > image.member->head.size() && !(size && media_size_stands_first(image.member->head))) {
    const Result<std::string> whole = read_tar_image(archive, *image.member->position);
    if (!whole) return whole.error();
    size = media_size(*whole, name, medium, read);
  }
  if (!size) return size.error();
  return FoundImage{*size, image.member->bytes};
}

Result<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t at = 0; at < letters.size(); ++at) {
    values[static_cast<unsigned char>(letters[at])] = static_cast<std::int8_t>(at);
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  std::uint32_t held = 0;
  int bits = 0;
  bool padded = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (letter == '\n' || letter == '\r' || letter == ' ' || letter == '\t') continue;
    padded = padded || letter == '=';
    const int value = values[static_cast<unsigned char>(letter)];
    if (padded ? letter != '=' : value < 0) return wrong("byte " + std::to_string(at) + " is not base64");
    if (padded) continue;
    held = held << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(held >> bits & 0xFFU);
  }
  if (bits >= 6) return wrong("the base64 text ends inside of a byte");
  return bytes;
}

}  // namespace maestro
