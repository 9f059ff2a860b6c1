// Where a user's runs keep their local sockets.
#pragma once

#include <filesystem>

namespace maestro {

/// $XDG_RUNTIME_DIR/maestro, else maestro-UID in the folder for temporary files. Made by whoever listens there.
[[nodiscard]] std::filesystem::path runtime_folder();

}  // namespace maestro
