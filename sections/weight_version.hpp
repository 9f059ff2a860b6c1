// SPDX-License-Identifier: Apache-2.0
// Versions of a section's weights: the values before a step, copied from the ranks that train them and written to a
// section that only reads them. A version has the dtype of its reader's products, f32 or bf16, to which values are
// rounded to the nearest.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/files/safetensors.hpp"
#include "runtime/schedule/version_map.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Returns the values that a rank sends for a version: the parameters that it counts (is_counted), without a stage's
/// copies of another stage's.
[[nodiscard]] std::vector<WeightPart> sent_weights(Section& section, const ParallelContext& parallel);
/// Returns the elements of the section's parameters by name.
[[nodiscard]] std::map<std::string, std::int64_t> weight_elements(Section& section);

/// Copies elements `own` of the block of `parts` to `to`. Called on the section's device thread.
void copy_weights(Section& section, const std::vector<WeightPart>& parts, RowRange own, DType dtype, std::byte* to);
/// Copies the same elements from a version in a checkpoint. Throws JobError for values that the files lack.
void copy_weights(const std::vector<SafetensorsFile>& stored, const std::vector<WeightPart>& parts, RowRange own,
                  DType dtype, std::byte* to);
/// Writes a version to a frozen section. `version`: (VersionMap::elements(), 1). Called on the section's device thread.
void take_weights(Section& section, const VersionMap& map, const ConstTensor& version);

/// A version as it is stored.
struct WholeWeights {
  AlignedMemory memory;
  std::vector<NamedTensor> tensors;  ///< views into `memory`: vectors, by name
};
/// Puts the parameters in a version together.
[[nodiscard]] WholeWeights whole_weights(const VersionMap& map, const ConstTensor& version);

}  // namespace maestro
