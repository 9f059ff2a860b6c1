// SPDX-License-Identifier: Apache-2.0
// Reads checkpoints of a job. A checkpoint is a folder `step-00000123/` with checkpoint.json and for each section
// <section>/config.json, <section>/model.safetensors (a Hugging Face folder) and <section>/optimizer.safetensors.
// A section whose tensors were written in N parts has model-0000i-of-0000N.safetensors with
// model.safetensors.index.json instead (a Hugging Face folder with shards), and optimizer-0000i-of-0000N.safetensors.
// A section that trains adapters has the stem adapter_model, with adapter_config.json (a PEFT folder) and without an
// index, since PEFT does not read shards.
// <section>/versions/00000123.safetensors, or its parts, are the weights before step 123, for generators that read
// older weights.
// Parts only record which writer wrote which tensors: reading merges them into one section. The folder also contains
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

/// Identifies one of a section's `count` writers. Writers hold different tensors; a pipeline stage, for example, holds
/// the tensors of its layers.
struct StatePart {
  std::uint32_t index = 0;  ///< below count
  std::uint32_t count = 1;  ///< 1 (a section in one piece) to 99999; the same for every part
  friend bool operator==(const StatePart&, const StatePart&) = default;
};

/// A section's weights before a step, which generators still read.
struct EarlierWeights {
  std::uint64_t step = 0;
  std::vector<NamedTensor> tensors;  ///< f32 or bf16 vectors, under the names of the section's parameters
};

/// The content of a section, or of a part, for a checkpoint. Tensors are views: the owner keeps them unchanged while
/// they are written.
struct SectionState {
  std::string config;                   ///< text of the section's config.json; part 0 writes it
  std::vector<NamedTensor> parameters;  ///< weights under their Hugging Face names
  std::vector<NamedTensor> optimizer;   ///< exp_avg.*, exp_avg_sq.*, loads.*, row_sums.*; empty for a frozen section
  std::uint64_t optimizer_step = 0;     ///< optimizer steps done; the same in every part
  StatePart part;
  bool adapters = false;  ///< the parameters are low-rank adapters under PEFT's names; the same in every part
  std::vector<EarlierWeights> earlier = {};  ///< read by read_earlier_weights()
};

/// A section read back with merged parts. `state` contains views of the mapped files, which live as long as this object
/// or the object that it is moved to; the tensors must not be written to.
struct StoredSection {
  SectionState state;
  std::vector<SafetensorsFile> model;      ///< files by part; never empty
  std::vector<SafetensorsFile> optimizer;  ///< files by part, as many
};

/// Reads only checkpoint.json. Errors name the file.
[[nodiscard]] Result<Manifest> load_checkpoint(const std::filesystem::path& checkpoint);

/// Reads everything and compares sizes and checksums. The error (corrupt) names every file that is missing, truncated
/// or altered.
[[nodiscard]] Status verify_checkpoint(const std::filesystem::path& checkpoint);

/// Returns whether a checkpoint has a section's weights before a step.
[[nodiscard]] bool has_earlier_weights(const Manifest& manifest, std::string_view section, std::uint64_t step);
/// Verifies and maps the weights before a step: a file, or one a part. Error not_found: the checkpoint lacks them.
[[nodiscard]] Result<std::vector<SafetensorsFile>> read_earlier_weights(const std::filesystem::path& checkpoint,
                                                                        std::string_view section, std::uint64_t step);

/// Verifies the section's files, then maps and merges them. Errors: not_found, with a list of the checkpoint's
/// sections; corrupt as above, and for parts that do not form a section (a part is missing, a tensor is in two parts,
/// their steps differ).
[[nodiscard]] Result<StoredSection> read_section(const std::filesystem::path& checkpoint, std::string_view section);

/// Returns the checkpoint below `root` that was committed last, only of the run with id `run` if given; leftovers of
/// crashes do not count. Errors: not_found if there is none; invalid_argument if no run is given and there are
/// checkpoints of several runs; corrupt if the checkpoint.json of a step after the best readable checkpoint is damaged:
/// a silent return to that checkpoint would lose work, so the message names it.
[[nodiscard]] Result<std::filesystem::path> latest_checkpoint(const std::filesystem::path& root,
                                                              const std::optional<std::string>& run = std::nullopt);

/// Resolves the argument of `--resume`: a checkpoint, or the latest checkpoint in a checkpoints folder or a run folder.
/// In a run folder, run.json names the run; without it, all checkpoints must belong to the same run. Errors (not_found,
/// invalid_argument) begin with "cannot <purpose>", and name the searched path and the nearest existing entry.
[[nodiscard]] Result<std::filesystem::path> resolve_checkpoint(const std::filesystem::path& path,
                                                               std::string_view purpose = "resume from");

}  // namespace maestro
