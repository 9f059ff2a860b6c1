// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/conversation_view.hpp"

#include "runtime/core/input_file.hpp"
#include "runtime/dataset/tar_rows.hpp"

namespace maestro {

Result<std::string> read_image(const StoredImage& image) {
  if (image.position && !image.bytes) return read_tar_image(image.path, *image.position);
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(image.path, failure);
  if (failure) return system_error("cannot read", image.path, failure.value());
  const std::int64_t begin = image.position.value_or(0);
  const std::int64_t bytes = image.bytes.value_or(static_cast<std::int64_t>(size));
  if (begin + bytes > static_cast<std::int64_t>(size)) {
    return Error{ErrorCode::corrupt, image.path.string() + " has " + std::to_string(size) + " bytes, fewer than the " +
                                         std::to_string(begin + bytes) + " up to the end of " + image.name};
  }
  const Result<FileDescriptor> file = open_for_reading(image.path);
  if (!file) return file.error();
  return read_at(*file, image.path, static_cast<std::uint64_t>(begin), static_cast<std::size_t>(bytes));
}

Result<Image> decode_image(const StoredImage& image) {
  if (!image.position) return decode_image(image.path);
  const Result<std::string> bytes = read_image(image);
  if (!bytes) return bytes.error();
  return decode_image(*bytes, image.path.string() + ": " + image.name);
}

}  // namespace maestro
