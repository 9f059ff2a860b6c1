// SPDX-License-Identifier: Apache-2.0
// Texts of several models behind the same prompts, for a person to compare.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/observe/console.hpp"

namespace maestro {

struct NamedModel {
  std::string name;
  std::string folder;  ///< config.json, weights, tokenizer
};

/// Prints the likeliest continuation of each prompt by each model, in tokens of the model's own. Models are loaded
/// after each other. A model that cannot continue prompts gets the reason instead.
void print_continuations(std::span<const NamedModel> models, std::span<const std::string> prompts, Console& console);

}  // namespace maestro
