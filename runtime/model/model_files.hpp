// SPDX-License-Identifier: Apache-2.0
// The files of a Hugging Face folder beside config.json and weights: tokenizer, templates, settings of generation and
// of pictures. They go from the folder that a section begins from into its checkpoints and exports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

/// The tokenizer's files, and all files that belong to a model, by name; of these, the files that a folder has.
[[nodiscard]] std::vector<std::string> tokenizer_files(const std::filesystem::path& folder);
[[nodiscard]] std::vector<std::string> model_files(const std::filesystem::path& folder);

/// Copies a file as AtomicFile writes it, without holding it in memory. The copy has no permissions that the source
/// lacks.
[[nodiscard]] Result<WrittenFile> copy_model_file(const std::filesystem::path& from, const std::filesystem::path& to,
                                                  OperationHook hook = {});
/// Copies files of these names from folder to folder; of generation_config.json the savable_generation_config(). Errors
/// name a link out of the folder (check_model_links), a file that is not JSON though its name ends in .json, and a
/// template or a list of merges that is not text.
[[nodiscard]] Status copy_model_files(const std::filesystem::path& from, const std::vector<std::string>& names,
                                      const std::filesystem::path& to);

/// Writes into `folder` the files from which AutoTokenizer makes the tokenizer that [data] names: the files beside
/// it, or for "bytes" byte_tokenizer_json(), with its end token if `vocabulary` holds it. tokenizer_config.json is
/// added where it is missing.
[[nodiscard]] Status write_tokenizer(std::string_view tokenizer, std::int64_t vocabulary,
                                     const std::filesystem::path& folder);

}  // namespace maestro
