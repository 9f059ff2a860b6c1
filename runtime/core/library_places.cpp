// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/library_places.hpp"

#include <dlfcn.h>

#include <system_error>

namespace maestro {

namespace fs = std::filesystem;

namespace {

const char anchor = 0;  // has an address in the file that contains this code

fs::path code_folder() {
  Dl_info code{};
  const bool found = dladdr(&anchor, &code) != 0 && code.dli_fname != nullptr;
  std::error_code failed;
  return found ? fs::absolute(code.dli_fname, failed).parent_path() : fs::path();
}

}  // namespace

std::vector<fs::path> library_places(const std::string& name) {
  std::error_code failed;
  return library_places(name, fs::read_symlink("/proc/self/exe", failed).parent_path(), code_folder());
}

std::vector<fs::path> library_places(const std::string& name, const fs::path& program_folder,
                                     const fs::path& code_folder) {
  std::vector<fs::path> places{program_folder / name,
                               (program_folder / ".." / "lib" / "maestro" / name).lexically_normal()};
  if (!code_folder.empty() && code_folder / name != places[0] && code_folder / name != places[1]) {
    places.push_back(code_folder / name);
  }
  return places;
}

}  // namespace maestro
