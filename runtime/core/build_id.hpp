// SPDX-License-Identifier: Apache-2.0
// The identity of this program's build, with the libraries that it has loaded.
#pragma once

#include <string>

namespace maestro {

/// Returns the GNU build ids (the linker's hashes of the content) in hexadecimal digits: of the program and, if
/// maestro's code is there, of libmaestro.so. Empty if the linker wrote none. Thread-safe.
[[nodiscard]] std::string build_id();
/// Appends the id of the loaded library that holds `address` to all later results of build_id(). Thread-safe.
void add_to_build_id(const void* address);

}  // namespace maestro
