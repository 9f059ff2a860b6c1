// SPDX-License-Identifier: Apache-2.0
// Files with a JSON value a line.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace maestro {

/// Passes each line's value, with "file:line", to `sink`. `file` may be "-", standard input. Throws JobError, in which
/// `command` stands for the file as a whole.
void for_json_lines(const std::string& file, const std::string& command,
                    const std::function<void(const std::string& where, const nlohmann::json& value)>& sink);

}  // namespace maestro
