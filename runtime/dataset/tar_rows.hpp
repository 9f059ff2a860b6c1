// SPDX-License-Identifier: Apache-2.0
// Rows of WebDataset archives: members with the same path up to the first dot of their name, one behind the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// A member that holds a picture (.jpg, .jpeg, .png, .webp).
struct TarImage {
  std::string name;
  std::optional<std::int64_t> position;  ///< where it begins in the file; nothing: the archive is compressed
  std::uint64_t bytes = 0;
  std::string head;  ///< its first bytes, at most 64 KiB
};

struct TarRow {
  std::string stem;
  std::optional<std::string> json;
  std::optional<std::string> text;
  std::vector<TarImage> pictures;  ///< in the order of the archive
};

/// Passes the rows of an archive to `sink`, in order, until it returns an error. Members without a dot in their name,
/// or with a leading one, belong to no row, as webdataset has it. Errors name the file and the member: a damaged
/// archive, a member of another ending, a text of more than 64 MiB, a row with pictures alone.
[[nodiscard]] Status read_tar_rows(const std::filesystem::path& file, const std::function<Status(TarRow&&)>& sink);

/// Returns the content of a picture of an archive that is not compressed.
[[nodiscard]] Result<std::string> read_tar_image(const std::filesystem::path& file, std::int64_t position);

}  // namespace maestro
