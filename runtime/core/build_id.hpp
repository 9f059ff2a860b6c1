// SPDX-License-Identifier: Apache-2.0
// The identity of this program's build, with the libraries that it has loaded.
#pragma once

#include <string>

namespace maestro {

/// Returns the GNU build ids of the program and, where it has maestro's code from there, of libmaestro.so, hexadecimal
/// digits: the linker's hashes of their content. Empty where the linker wrote none.
/// Thread-safe.
[[nodiscard]] std::string build_id();
/// From now on build_id() ends with the id of the loaded library that holds `address`. Thread-safe.
void add_to_build_id(const void* address);

}  // namespace maestro
