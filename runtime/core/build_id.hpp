// SPDX-License-Identifier: Apache-2.0
// The identity of this program's build.
#pragma once

#include <string>

namespace maestro {

/// Returns the GNU build id of the program, hexadecimal digits: the linker's hash of its content. Empty where the
/// linker wrote none.
[[nodiscard]] std::string build_id();

}  // namespace maestro
