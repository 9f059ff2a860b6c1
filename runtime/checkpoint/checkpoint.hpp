// SPDX-License-Identifier: Apache-2.0
// A checkpoint of the whole job, as read back: a folder `step-00000123/` with checkpoint.json and for each section
// <section>/config.json, <section>/model.safetensors (a Hugging Face folder) and <section>/optimizer.safetensors.
// A section whose tensors were written in N parts has model-0000i-of-0000N.safetensors with
// model.safetensors.index.json instead (a Hugging Face folder with shards), and optimizer-0000i-of-0000N.safetensors.
// Of a section that trains adapters the stem is adapter_model, beside adapter_config.json (a folder of PEFT), and there
// is no index: PEFT has no shards.
// Parts record only which writer wrote which tensors: reading merges them into the whole section. The folder also has
// the model's other files (model_files.hpp), which the writer of part 0 copies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"

namespace maestro {

/// Names one of the `count` writers of a section. Each writer holds tensors of its own; a pipeline stage, for example,
/// holds those of its layers.
struct StatePart {
  std::uint32_t index = 0;  ///< below count
  std::uint32_t count = 1;  ///< 1 (the whole section) to 99999; the same for every part
  friend bool operator==(const StatePart&, const StatePart&) = default;
};

/// The content that a section, or a part of it, puts into a checkpoint. Tensors are views: the owner keeps them
/// unchanged while they are written.
struct SectionState {
  std::string config;                   ///< text of config.json, the whole section's; that of part 0 is written
  std::vector<NamedTensor> parameters;  ///< under their Hugging Face names
  std::vector<NamedTensor> optimizer;   ///< exp_avg.*, exp_avg_sq.*; empty for a frozen section
  std::uint64_t optimizer_step = 0;     ///< the same in every part
  StatePart part;
  bool adapters = false;  ///< the parameters are low-rank adapters under PEFT's names; the same in every part
};

/// A whole section read back, its parts merged. `state` views the mapped files, which live as long as this object or
/// the object that it is moved to; the tensors must not be written to.
struct StoredSection {
  SectionState state;
  std::vector<SafetensorsFile> model;      ///< by part; never empty
  std::vector<SafetensorsFile> optimizer;  ///< as many
};

/// Reads checkpoint.json only. Errors name the file.
[[nodiscard]] Result<Manifest> load_checkpoint(const std::filesystem::path& checkpoint);

/// Reads everything and compares sizes and checksums. The error (corrupt) names every file that is missing, truncated
/// or altered.
[[nodiscard]] Status verify_checkpoint(const std::filesystem::path& checkpoint);

/// Verifies the section's files, then maps and merges them. Errors: not_found, listing the sections of the checkpoint;
/// corrupt as above, and for parts that do not make a section (a part is missing, a tensor is in two parts, their steps
/// differ).
[[nodiscard]] Result<StoredSection> read_section(const std::filesystem::path& checkpoint, std::string_view section);

/// Returns the checkpoint below `root` that was committed last, of the run with the id `run` if `run` is given;
/// leftovers of crashes do not count. Errors: not_found when there is none; invalid_argument when no run is given and
/// there are checkpoints of several; corrupt when checkpoint.json of a later step than the best readable checkpoint is
/// damaged: going back silently would lose work, so the message names the checkpoint to resume from instead.
[[nodiscard]] Result<std::filesystem::path> latest_checkpoint(const std::filesystem::path& root,
                                                              const std::optional<std::string>& run = std::nullopt);

/// Resolves the argument of `--resume`: a checkpoint, or the latest checkpoint in a checkpoints folder or a run folder.
/// In a run folder run.json names the run; without it all checkpoints must be of the same run. Errors (not_found,
/// invalid_argument) begin with "cannot <purpose>", and name the path that was searched and the nearest existing entry.
[[nodiscard]] Result<std::filesystem::path> resolve_checkpoint(const std::filesystem::path& path,
                                                               std::string_view purpose = "resume from");

}  // namespace maestro
