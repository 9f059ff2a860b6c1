// SPDX-License-Identifier: Apache-2.0
// Private to this folder: a section's files in a checkpoint, in one piece or in parts, and how they fit together.
//
// SF-1 (whole or numbered parts): a section is in one piece or in parts 1 to count, each with one model and one
//       optimizer file; nothing else is read.
// SF-2 (disjoint parts): no tensor is in two parts, and all parts have the same optimizer step.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/checkpoint.hpp"

namespace maestro {

inline constexpr std::string_view section_config_file = "config.json";
inline constexpr std::string_view section_index_file = "model.safetensors.index.json";
inline const std::string optimizer_step_key = "optimizer_step";  // key in the optimizer files' metadata

/// Returns model.safetensors, or for the second of three parts model-00002-of-00003.safetensors, as in transformers.
[[nodiscard]] std::string model_file(StatePart part);
/// Returns adapter_model.safetensors, or the name of a part.
[[nodiscard]] std::string adapter_file(StatePart part);
[[nodiscard]] std::string optimizer_file(StatePart part);
/// Returns versions/00000041.safetensors, or the name of a part: the weights before step 41.
[[nodiscard]] std::string earlier_weights_file(std::uint64_t step, StatePart part);
/// Returns the paths of the files with a section's weights before a step, as `manifest` names them: one, or one a part;
/// empty unless all are there.
[[nodiscard]] std::vector<std::string> earlier_weights_files(const Manifest& manifest, std::string_view section,
                                                             std::uint64_t step);

/// Returns whether the section's parameters are adapters.
[[nodiscard]] bool has_adapters(const Manifest& manifest, std::string_view section);
/// Returns whether the section is stored in parts.
[[nodiscard]] bool is_in_parts(const Manifest& manifest, std::string_view section);

/// Maps the section's files that `manifest` names below `checkpoint`, merges the parts and checks SF-1 and SF-2, but
/// not checksums. Errors (corrupt, or errors of a faulty file) name the folder or file, and the part.
[[nodiscard]] Result<StoredSection> map_section(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                                std::string_view section);

/// Returns the text of model.safetensors.index.json, which transformers reads to find a model's tensors:
/// {"metadata": {"total_size": bytes of all tensors}, "weight_map": {name: file, sorted by name}}.
/// https://huggingface.co/docs/transformers/big_models, "Sharded checkpoints".
[[nodiscard]] std::string index_text(const std::map<std::string, std::string>& files, std::uint64_t total_bytes);
/// Returns the same text for a stored section.
[[nodiscard]] Result<std::string> index_text(const StoredSection& section);

/// Checks that the checkpoint has the section. The error (not_found) lists its sections and names the nearest.
[[nodiscard]] Status find_section(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                  std::string_view section);

}  // namespace maestro
