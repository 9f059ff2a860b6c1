// SPDX-License-Identifier: Apache-2.0
// Whether a Hugging Face folder holds the model that a section is.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Compares a section's config_json() with `folder`/config.json by the settings that decide shapes and results: family,
/// sizes, tying, rope_theta and the norms' epsilon; of a whole model's file, the section's part. The error names the
/// file, the first key that differs and both values.
[[nodiscard]] Status check_same_model(const std::string& config_json, const std::filesystem::path& folder);

}  // namespace maestro
