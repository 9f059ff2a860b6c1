// SPDX-License-Identifier: Apache-2.0
// The files of a Hugging Face folder other than config.json and weights: tokenizer, templates, settings for generation
// and images. They are copied from the folder that a section begins from to its checkpoints and exports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

/// Next to a part of a vision-language model in a checkpoint: {"folder": the complete model's, "weights": its
/// fingerprint}, for the export of the complete model.
inline constexpr std::string_view whole_model_file = "complete_model.json";

/// Returns the names of the tokenizer's files in a folder; model_files() returns all files that belong to a model.
[[nodiscard]] std::vector<std::string> tokenizer_files(const std::filesystem::path& folder);
[[nodiscard]] std::vector<std::string> model_files(const std::filesystem::path& folder);

/// Copies a file by AtomicFile, without holding it in memory. The copy never has more permissions than the source.
[[nodiscard]] Result<WrittenFile> copy_model_file(const std::filesystem::path& from, const std::filesystem::path& to,
                                                  OperationHook hook = {});
/// Copies files with these names from folder to folder; generation_config.json becomes savable_generation_config().
/// Errors name a link out of the folder (check_model_links), a file with ending .json that is not JSON, and a template
/// or a list of merges that is not text.
[[nodiscard]] Status copy_model_files(const std::filesystem::path& from, const std::vector<std::string>& names,
                                      const std::filesystem::path& to);

/// Writes files to `folder` that AutoTokenizer reads as the tokenizer that [data] names: the files next to it, or for
/// "bytes" byte_tokenizer_json(), with its end token if `vocabulary` contains it. A missing tokenizer_config.json is
/// added.
[[nodiscard]] Status write_tokenizer(std::string_view tokenizer, std::int64_t vocabulary,
                                     const std::filesystem::path& folder);

}  // namespace maestro
