// SPDX-License-Identifier: Apache-2.0
// Names of the folders below a checkpoints folder, and the content that each name implies.
//
//   step-00000123              complete
//   step-00000123.old          complete, being replaced by another checkpoint of the same step
//   step-00000123.tmp          staging: being written, or left by a crash; for run R the name is step-00000123.R.tmp
//   step-00000123.removed.tmp  being removed
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

enum class CheckpointKind : std::uint8_t { complete, replaced, staging, removed };

struct CheckpointFolder {
  std::filesystem::path path;
  std::uint64_t step = 0;
  CheckpointKind kind = CheckpointKind::complete;
  std::string run;  ///< run id of a staging folder; else empty
};

[[nodiscard]] std::string checkpoint_folder_name(std::uint64_t step, CheckpointKind kind, std::string_view run = {});
/// Returns the parsed name; nothing if it is not one of the four kinds.
[[nodiscard]] std::optional<CheckpointFolder> parse_checkpoint_folder(const std::filesystem::path& path);

/// Returns all such folders below `root`, sorted by step. Errors: not_found if `root` does not exist.
[[nodiscard]] Result<std::vector<CheckpointFolder>> list_checkpoint_folders(const std::filesystem::path& root);
/// Returns the folders that contain a checkpoint: complete folders, and replaced folders without a successor.
[[nodiscard]] std::vector<CheckpointFolder> loadable(const std::vector<CheckpointFolder>& folders);

}  // namespace maestro
