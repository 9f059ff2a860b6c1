// SPDX-License-Identifier: Apache-2.0
// Places of the shared libraries that a program loads on demand.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace maestro {

/// Returns the places of a library, the nearest first: next to the program, in ../lib/maestro as installed, and next to
/// the file with this code, which may be another program's libmaestro.so. Thread-safe.
[[nodiscard]] std::vector<std::filesystem::path> library_places(const std::string& name);
/// Returns the same for a program and a file of code in these folders.
[[nodiscard]] std::vector<std::filesystem::path> library_places(const std::string& name,
                                                                const std::filesystem::path& program_folder,
                                                                const std::filesystem::path& code_folder);

}  // namespace maestro
