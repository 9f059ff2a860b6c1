// SPDX-License-Identifier: Apache-2.0
// The identity of this program's build.
#pragma once

#include <string>

namespace maestro {

/// Returns the GNU build ids of the program and, where it has maestro's code from there, of libmaestro.so, hexadecimal
/// digits: the linker's hashes of their content. Empty where the linker wrote none.
[[nodiscard]] std::string build_id();

}  // namespace maestro
