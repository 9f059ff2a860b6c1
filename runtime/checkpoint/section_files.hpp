// SPDX-License-Identifier: Apache-2.0
// Private to this folder: a section's files in a checkpoint, whole or in parts, and how they fit together.
//
// SF-1 (whole or numbered parts): a section is whole or in parts 1 to count, each with one model and one optimizer
//       file; nothing else is read.
// SF-2 (disjoint parts): no tensor is in two parts, and all parts are of the same optimizer step.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/checkpoint/checkpoint.hpp"

namespace maestro {

inline constexpr std::string_view section_config_file = "config.json";
inline constexpr std::string_view section_index_file = "model.safetensors.index.json";
inline const std::string optimizer_step_key = "optimizer_step";  // in the metadata of the optimizer's files

/// model.safetensors; of the second of three parts model-00002-of-00003.safetensors, as transformers names shards.
[[nodiscard]] std::string model_file(StatePart part);
/// adapter_model.safetensors, or likewise a part of it.
[[nodiscard]] std::string adapter_file(StatePart part);
[[nodiscard]] std::string optimizer_file(StatePart part);

/// Whether the section's parameters are adapters.
[[nodiscard]] bool has_adapters(const Manifest& manifest, std::string_view section);
/// Whether the manifest has a file of a part of the section.
[[nodiscard]] bool is_in_parts(const Manifest& manifest, std::string_view section);

/// Maps the section's files that `manifest` names below `checkpoint`, merges the parts and checks SF-1 and SF-2.
/// Checksums are not looked at. Errors (corrupt, or of the file at fault) name the folder or file, and the part.
[[nodiscard]] Result<StoredSection> map_section(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                                std::string_view section);

/// Text of model.safetensors.index.json, from which transformers finds a model's tensors:
/// {"metadata": {"total_size": bytes of all tensors}, "weight_map": {name: file, sorted by name}}.
/// https://huggingface.co/docs/transformers/big_models, "Sharded checkpoints".
[[nodiscard]] std::string index_text(const std::map<std::string, std::string>& files, std::uint64_t total_bytes);
/// The same of a section as it is stored.
[[nodiscard]] Result<std::string> index_text(const StoredSection& section);

/// Whether the checkpoint has the section. The error (not_found) lists its sections, with the nearest.
[[nodiscard]] Status find_section(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                  std::string_view section);

}  // namespace maestro
