// SPDX-License-Identifier: Apache-2.0
// Continuations of the same prompts by several models, for a person to compare.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/observe/console.hpp"

namespace maestro {

struct NamedModel {
  std::string name;
  std::string folder;  ///< config.json, weights, tokenizer
};

inline constexpr std::int64_t continuation_tokens = 24;  ///< most tokens of a continuation

/// Returns the likeliest continuation of each prompt, in the model's tokens. Throws JobError.
[[nodiscard]] std::vector<std::string> continuations_of(const std::string& folder,
                                                        std::span<const std::string> prompts);

/// Returns the text in a line, in quotation marks.
[[nodiscard]] std::string in_quotes(const std::string& text);

/// Prints the likeliest continuation of each prompt by each model, in the model's tokens. Models are loaded one after
/// another. For a model that cannot continue prompts, prints the reason instead.
void print_continuations(std::span<const NamedModel> models, std::span<const std::string> prompts, Console& console);

}  // namespace maestro
