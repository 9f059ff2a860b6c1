// SPDX-License-Identifier: Apache-2.0
// Models that options of commands name.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// Returns the folder of a model, which `name` gives as a folder or as a name in the hub's cache. Throws JobError that
/// begins with the option.
[[nodiscard]] std::string model_folder(const char* option, const std::string& name);

/// Returns the most tokens of a sample that the model in a folder takes; a config.json that cannot be read, which the
/// job reports, has no limit.
[[nodiscard]] std::int64_t positions_of(const std::string& folder);

}  // namespace maestro
