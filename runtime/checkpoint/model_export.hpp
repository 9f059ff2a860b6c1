// SPDX-License-Identifier: Apache-2.0
// Complete Hugging Face folders out of checkpoints, for other programs: weights of a chosen dtype, in shards where they
// are large, config.json and the model's other files. The optimizer's state stays behind.
//
// EX-1 (whole or absent): under its final name an export is complete; a folder that it replaces is removed after it.
// EX-2 (nothing overwritten): without `replace`, a folder that holds anything is refused.
// EX-3 (adapters' base): adapters are merged with the weights that they were trained on alone, by their fingerprint.
//
// Of a section that trains adapters the export is a folder of PEFT, in f32 unless another dtype is named, or with
// `merge` the whole model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/model/adapter_config.hpp"

namespace maestro {

/// A model whose tensors are made while it is written, a file at a time.
struct MadeModel {
  std::vector<NamedTensor> tensors;  ///< names and shapes, f32, without memory
  /// Writes the values of the tensor of this name.
  std::function<Status(const std::string&, std::span<float>)> make;
};
/// Returns the model that adapters and the weights below them are together. The arguments outlive it.
using MergeAdapters = std::function<Result<MadeModel>(const StoredSection&, const AdapterConfig&)>;

struct ExportOptions {
  std::optional<WeightDtype> dtype;           ///< none: that of the weights that the section began from, else f32
  std::uint64_t shard_bytes = 5'000'000'000;  ///< of tensors in a file; a larger tensor has a file of its own
  bool replace = false;                       ///< an earlier export in its place
  MergeAdapters merge = {};                   ///< for sections that train adapters alone; none: no merging
};

struct ExportedModel {
  WeightDtype dtype = WeightDtype::f32;
  std::size_t files = 0;    ///< of weights
  std::uint64_t bytes = 0;  ///< of all tensors
  bool adapters = false;    ///< a folder of PEFT
};

/// Exports a section of a checkpoint to the folder `to`, whose parents are made. Reads and verifies the section as
/// read_section; the errors are those of it, of write_weights, of the system, and invalid_argument for EX-2.
[[nodiscard]] Result<ExportedModel> export_section(const std::filesystem::path& checkpoint, std::string_view section,
                                                   const std::filesystem::path& to, const ExportOptions& options = {});

/// A checkpoint with a section of it.
struct CheckpointSection {
  std::filesystem::path checkpoint;
  std::string section;
};
/// Resolves the argument of `maestro export`: a path as resolve_checkpoint takes, with or without a section's name
/// behind it. Without, the checkpoint has a single section. Errors name the path and the sections or the nearest entry.
[[nodiscard]] Result<CheckpointSection> resolve_section(const std::filesystem::path& path);

}  // namespace maestro
