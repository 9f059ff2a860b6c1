// SPDX-License-Identifier: Apache-2.0
// Import and export of a section's tensors under their Hugging Face names: for checkpoints (values and optimizer state)
// and for weights exchanged with other tools.
//
// Stored files are independent of a section's ranks and pipeline stages: files hold complete tensors, a stage's file a
// part of the model's tensors, and a copy of a tensor that another stage stores (StateEntry::copy) is only read.
//
// IO-1 (round trip): import(export(section)) leaves every bit of the section as it was, for any layout of its ranks,
//       and for stages if the exports of all stages are put together.
// IO-2 (all or nothing): an import that fails has changed nothing, since names, shapes and dtypes of all tensors are
//       checked before any value is read; ranks of a replica fail together.
// IO-3 (tensor by tensor): load_weights() holds the stored tensors of a single parameter at a time.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Copies of a section's tensors at a given moment, f32 or bf16, independent of the section: a writer thread may hold
/// them while training continues.
struct TensorSnapshot {
  AlignedMemory memory;
  std::vector<NamedTensor> tensors;  ///< views into `memory`, in the order of Section::state(), without copies
};

/// Exports every tensor of `section` from a flat buffer of its Parameters, named prefix + Hugging Face name and laid
/// out as stored. Returns invalid_argument if the buffer is not there: moments of a section that is not trained, values
/// of a frozen section. Reads on the caller's thread, which must be the thread that may use the section's Parameters.
/// Sharded optimizer state (Parameters::shard_optimizer_state) is gathered in gradients() first, and goes in and out as
/// that buffer.
[[nodiscard]] Result<TensorSnapshot> export_tensors(Section& section, ParameterBuffer which,
                                                    std::string_view prefix = "");

/// The dtype and the memory of exported tensors.
struct ExportedAs {
  DType dtype = DType::f32;   ///< or bf16, to which values are rounded to the nearest
  AlignedMemory reused = {};  ///< memory of an earlier snapshot without readers: saves zeroing new memory, which costs
                              ///< more than the copy
};
/// Exports a section whose parameters are on several ranks, which hold all of them together (Layout::holders): complete
/// tensors, put together from the ranks' parts; each part comes from the first rank that holds it. No rank may be at
/// work meanwhile. A sharded section cannot be exported by a single rank (invalid_argument).
[[nodiscard]] Result<TensorSnapshot> export_tensors(std::span<Section* const> ranks, ParameterBuffer which,
                                                    std::string_view prefix = "", ExportedAs as = {});

/// Writes `tensors` (f32 or bf16, named prefix + Hugging Face name) into a flat buffer and marks the section's packed
/// weights as out of date; a rank takes its parts out of the complete tensors. A buffer in bf16 takes values
/// rounded to the nearest. Tensors that the section ignores() are skipped. Errors name `file` and the first tensor that
/// is missing, unexpected or of another shape, with the nearest name or both shapes.
[[nodiscard]] Status import_tensors(Section& section, ParameterBuffer which, std::span<const NamedTensor> tensors,
                                    const std::string& file, std::string_view prefix = "");

/// Writes model.safetensors and config.json into `folder`, which is created. Each file appears complete or not at all.
[[nodiscard]] Status save_weights(Section& section, const std::filesystem::path& folder);
/// Saves a section that is on several ranks, as export_tensors.
[[nodiscard]] Status save_weights(std::span<Section* const> ranks, const std::filesystem::path& folder);

/// Loads the values from a Hugging Face folder: config.json must describe the section's model (the first differing key
/// is named), then the tensors of model.safetensors or of its shards. Names may lack the base model's prefix
/// ("transformer.", "model."). Adapters stay as they are (Section::weights). A section that is already frozen packs
/// each parameter as it comes (Parameters::load).
[[nodiscard]] Status load_weights(Section& section, const std::filesystem::path& folder);

}  // namespace maestro
