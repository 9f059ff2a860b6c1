// SPDX-License-Identifier: Apache-2.0
// Where the shared libraries that a program loads on demand are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace maestro {

/// Returns the places of a library, the nearest first: beside the program, in ../lib/maestro as installed, and beside
/// the file that has this code, which may be libmaestro.so of another program's. Thread-safe.
[[nodiscard]] std::vector<std::filesystem::path> library_places(const std::string& name);
/// The same for a program and a file of code in these folders.
[[nodiscard]] std::vector<std::filesystem::path> library_places(const std::string& name,
                                                                const std::filesystem::path& program_folder,
                                                                const std::filesystem::path& code_folder);

}  // namespace maestro
