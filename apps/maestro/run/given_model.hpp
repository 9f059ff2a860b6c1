// SPDX-License-Identifier: Apache-2.0
// Models that options of commands name.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// Returns a model's folder; `name` is this folder, or a name in the hub's cache. Throws JobError that begins with the
/// option.
[[nodiscard]] std::string model_folder(const char* option, const std::string& name);

/// Returns the longest sample that a model takes, in tokens. If its config.json cannot be read, which the job reports,
/// the length is without limit.
[[nodiscard]] std::int64_t positions_of(const std::string& folder);

}  // namespace maestro
