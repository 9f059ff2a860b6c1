// SPDX-License-Identifier: Apache-2.0
// Files with a JSON value a line.
#pragma once

#include <functional>
#include <string>

#include "runtime/core/json_value.hpp"

namespace maestro {

/// Passes each line's value to `sink`; errors about a value name "FILE:LINE". `file` may be "-", standard input. Throws
/// JobError, with `command` if the file cannot be read or is not JSON.
void for_json_lines(const std::string& file, const std::string& command,
                    const std::function<void(const JsonValue& value)>& sink);

}  // namespace maestro
