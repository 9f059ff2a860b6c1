// SPDX-License-Identifier: Apache-2.0
// Model folders as this program writes them: weights, or low-rank adapters that name the folder of their base weights.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/checkpoint/model_export.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/lora_config.hpp"
#include "sections/section.hpp"

namespace maestro {

struct ModelFolder {
  std::filesystem::path weights;   ///< folder of weights; empty: a section's initial values; never from open()
  std::filesystem::path adapters;  ///< folder of adapters; empty: none
  LoraConfig lora;                 ///< settings of the adapters

  /// Looks for adapter_config.json in `folder`; without it `folder` has the weights. Errors name the file.
  [[nodiscard]] static Result<ModelFolder> open(const std::filesystem::path& folder);
};

/// Loads the weights of a section that was built with `folder.lora` (load_weights), and its adapters, also from a
/// checkpoint in parts.
[[nodiscard]] Status load_model(Section& section, const ModelFolder& folder);

/// Adds scale B A to the weights of the folder `config.base`, in f32 and under full names. The arguments outlive the
/// model. Errors name the file and the first tensor at fault.
[[nodiscard]] Result<MadeModel> merge_adapters(const StoredSection& adapters, const AdapterConfig& config);

/// Writes a complete vision-language model (ExportOptions::complete): its weights, with the values of the sections that
/// are its parts, and its other files.
[[nodiscard]] Status write_complete_model(const std::vector<StoredSection>& parts,
                                          const std::filesystem::path& complete, const std::filesystem::path& to,
                                          ExportedModel& model);

}  // namespace maestro
