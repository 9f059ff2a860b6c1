// SPDX-License-Identifier: Apache-2.0
// Where a user's runs keep what only they may use: local sockets, tokens of addresses of this host.
#pragma once

#include <filesystem>

namespace maestro {

/// $XDG_RUNTIME_DIR/maestro, or /tmp/maestro-UID where there is no such place; made when missing. Throws JobError:
/// somebody else's, or open to others.
[[nodiscard]] std::filesystem::path runtime_folder();

}  // namespace maestro
