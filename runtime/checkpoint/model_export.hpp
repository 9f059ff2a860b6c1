// SPDX-License-Identifier: Apache-2.0
// Exports checkpoints as complete Hugging Face folders for other programs: weights of a chosen dtype, in shards if they
// are large, config.json and the model's other files, without optimizer state.
//
// EX-1 (whole or absent): under its final name an export is complete; a folder that it replaces is removed afterwards.
// EX-2 (nothing overwritten): without `replace`, a folder that is not empty is refused.
// EX-3 (adapters' base): adapters are merged only with the weights that they were trained on, by their fingerprint.
// EX-4 (complete models): sections that are parts of one model are exported together: sections with the same
// config.json,
//       which names an architecture, and without a tensor in common.
// EX-5 (complete vision-language models): if the weights were parts of such a folder, the export is that folder under
//       the names and dtypes that it has, with every tensor of other parts and every other file bit for bit; its
//       weights must not have changed since. All sections with parts of the same folder are exported together.
//
// A section that trains adapters is exported as a PEFT folder, in f32 unless another dtype is named, or with `merge` as
// the complete model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/model/adapter_config.hpp"

namespace maestro {

struct ExportedModel {
  WeightDtype dtype = WeightDtype::f32;
  std::size_t files = 0;    ///< number of weight files
  std::uint64_t bytes = 0;  ///< size of all tensors
  bool adapters = false;    ///< the export is a PEFT folder
};

/// A model whose tensors are made while it is written, file by file.
struct MadeModel {
  std::vector<NamedTensor> tensors;  ///< names and shapes, f32, without memory
  /// Writes the values of the named tensor.
  std::function<Status(const std::string&, std::span<float>)> make;
};
/// Returns the model of adapters and their adapted weights together. The arguments outlive it.
using MergeAdapters = std::function<Result<MadeModel>(const StoredSection&, const AdapterConfig&)>;

/// Writes the vision-language model in the folder `complete` to the folder `to`, with the stored values for its parts.
using WriteComplete = std::function<Status(const std::vector<StoredSection>&, const std::filesystem::path& complete,
                                           const std::filesystem::path& to, ExportedModel& model)>;

struct ExportOptions {
  std::optional<WeightDtype> dtype;           ///< dtype of the export; none: dtype of the initial weights, else f32
  std::uint64_t shard_bytes = 5'000'000'000;  ///< limit of tensor bytes per file; a larger tensor has a separate file
  bool replace = false;                       ///< an earlier export is replaced
  MergeAdapters merge = {};                   ///< merger, only for sections that train adapters; none: no merging
  /// Writer of complete vision-language models; none: each part is a separate model.
  WriteComplete complete = {};
};

/// Returns the checkpoint's sections that are one model with `section` (EX-4; with `complete` also EX-5), sorted; often
/// only `section`. Reads names only. Errors as read_section.
[[nodiscard]] Result<std::vector<std::string>> sections_of_model(const std::filesystem::path& checkpoint,
                                                                 std::string_view section, bool complete);
/// Returns names as "head+trunk".
[[nodiscard]] std::string joined_names(const std::vector<std::string>& sections);
/// Returns the end of an error for a folder that holds a part of a model: the model's sections, and the command that
/// exports them. Empty for a complete model, and for a folder outside a checkpoint.
[[nodiscard]] std::string way_to_whole_model(const std::filesystem::path& folder);

/// Exports the model of a checkpoint's section (EX-4) to the folder `to` and makes its parents. Reads and verifies the
/// sections as read_section. Errors as read_section and write_weights, system errors, and invalid_argument for EX-2.
[[nodiscard]] Result<ExportedModel> export_section(const std::filesystem::path& checkpoint, std::string_view section,
                                                   const std::filesystem::path& to, const ExportOptions& options = {});

/// A checkpoint and the name of a section in it.
struct CheckpointSection {
  std::filesystem::path checkpoint;
  std::string section;
};
/// Resolves the argument of `maestro export`: a path for resolve_checkpoint, optionally followed by a section's name.
/// Without a name, the checkpoint must have a single model (as sections_of_model). Errors name the path and the
/// sections or the nearest entry.
[[nodiscard]] Result<CheckpointSection> resolve_section(const std::filesystem::path& path, bool complete = true);

}  // namespace maestro
