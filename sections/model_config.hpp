// SPDX-License-Identifier: Apache-2.0
// Checks whether a Hugging Face folder holds the model of a section.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/model/text_part.hpp"

namespace maestro {

/// Returns the part of a vision-language model that a section with this config_json() can be.
[[nodiscard]] ModelPart part_of_config(const std::string& config_json);

/// Returns the part of the model in `folder`, which may have encoders for images and for sounds, that it is.
[[nodiscard]] ModelPart part_in_folder(const std::string& config_json, const std::filesystem::path& folder);

/// Compares a section's config_json() with `folder`/config.json by the settings that decide shapes and results: family,
/// sizes, tying, rope_theta and the norms' epsilon. If the file describes a complete model, compares the section's
/// part. The error names the file, the first key that differs and both values.
[[nodiscard]] Status check_same_model(const std::string& config_json, const std::filesystem::path& folder);

}  // namespace maestro
