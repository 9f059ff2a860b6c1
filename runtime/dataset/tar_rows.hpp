// SPDX-License-Identifier: Apache-2.0
// Rows of WebDataset archives: consecutive members with the same path up to the first dot of their name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// A member that holds an image (.jpg, .jpeg, .png, .webp) or a sound (.flac, .wav).
struct TarImage {
  std::string name;
  std::optional<std::int64_t> position;  ///< start in the file; nothing: the archive is compressed
  std::uint64_t bytes = 0;
  std::string head;  ///< first bytes, at most 64 KiB
};

struct TarRow {
  std::string stem;
  std::optional<std::string> json;
  std::optional<std::string> text;
  std::vector<TarImage> pictures;  ///< images and sounds in the archive's order
};

/// Passes the rows of an archive to `sink`, in order, until it returns an error. As in webdataset, members without a
/// dot in their name, or with a leading dot, belong to no row. Errors name the file and the member: a damaged archive,
/// a member with another ending, a text of more than 64 MiB, a row with only images.
[[nodiscard]] Status read_tar_rows(const std::filesystem::path& file, const std::function<Status(TarRow&&)>& sink);

/// Returns the content of an image in an uncompressed archive.
[[nodiscard]] Result<std::string> read_tar_image(const std::filesystem::path& file, std::int64_t position);

}  // namespace maestro
