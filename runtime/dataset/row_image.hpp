// SPDX-License-Identifier: Apache-2.0
// An image or a sound that a row of training data names or contains, as its columns and message parts state it:
//   a text            a path in the folder of images, file://PATH, or data:image/...;base64,...
//   {"bytes", "path"} the struct of Hugging Face's datasets: bytes of the file, else its path
//   {"image"} or {"audio"}, {"url"}, {"path"}, {"base64"}
// URLs of other hosts are refused with the command that downloads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/media_processor.hpp"
#include "runtime/dataset/tar_rows.hpp"
#include "runtime/images/image.hpp"

namespace maestro {

/// Parts of a row that its JSON does not contain.
struct RowMedia {
  std::vector<std::string> blobs;  ///< bytes of binary columns; the JSON has their numbers
  std::vector<TarImage> members;   ///< images of the row in its archive
  bool unread_json = false;        ///< the row is a caption, and its .json in the archive is not read
  Medium medium = image_medium;    ///< kind that is read next
};

struct RowImage {
  std::string name;                ///< path in the folder of images, or name in the archive; may be empty with content
  std::string content;             ///< bytes of the file, if the row contains them
  std::optional<TarImage> member;  ///< place in the row's archive
  Modality modality = Modality::image;
};

/// Reads an image; it takes content from `media`. The error (invalid_argument) begins with `where`.
[[nodiscard]] Result<RowImage> read_row_image(const nlohmann::json& value, const std::string& where, RowMedia& media);

/// An image's size, and the size of its file.
struct FoundImage {
  ImageSize size;  ///< upright; of a sound as media_size() has it
  std::uint64_t bytes = 0;
};
/// Reads the header of an image or a sound. `folder` has the images with a path, `archive` those with a member. Errors
/// name the file: missing, of another kind than the row names (MD-1; the model reads the kinds `read`), a member of a
/// compressed archive.
[[nodiscard]] Result<FoundImage> find_image(const RowImage& image, const std::filesystem::path& folder,
                                            const std::filesystem::path& archive, Media read = {});

/// Decodes base64 (RFC 4648, section 4), with or without padding and white space. The error is the first byte that is
/// not base64.
[[nodiscard]] Result<std::string> decode_base64(std::string_view text);

}  // namespace maestro
