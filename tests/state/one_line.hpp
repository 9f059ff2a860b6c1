// SPDX-License-Identifier: Apache-2.0
// What every error of this room owes its reader.
#pragma once

#include <gmock/gmock.h>

#include <string>

namespace maestro {

MATCHER(IsOneLine, "is one line of text") {
  return !arg.empty() && arg.find_first_of("\n\r") == std::string::npos;
}

}  // namespace maestro
