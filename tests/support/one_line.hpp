// SPDX-License-Identifier: Apache-2.0
// The form of every error: a single line.
#pragma once

#include <gmock/gmock.h>

#include <string>

namespace maestro {

MATCHER(IsOneLine, "is one line of text") {
  return !arg.empty() && arg.find_first_of("\n\r") == std::string::npos;
}

}  // namespace maestro
