// SPDX-License-Identifier: Apache-2.0
// Files with a JSON value a line.
#pragma once

#include <functional>
#include <string>

#include "runtime/core/json_value.hpp"

namespace maestro {

/// Passes each line's value to `sink`, as of the file "FILE:LINE". `file` may be "-", standard input. Throws JobError,
/// in which `command` stands for the file as a whole.
void for_json_lines(const std::string& file, const std::string& command,
                    const std::function<void(const JsonValue& value)>& sink);

}  // namespace maestro
