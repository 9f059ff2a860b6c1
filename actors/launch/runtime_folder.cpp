#include "actors/launch/runtime_folder.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace maestro {

std::filesystem::path runtime_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && std::filesystem::is_directory(runtime)) return std::filesystem::path(runtime) / "maestro";
  return std::filesystem::temp_directory_path() / ("maestro-" + std::to_string(getuid()));
}

}  // namespace maestro
