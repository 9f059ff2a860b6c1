// SPDX-License-Identifier: Apache-2.0
// The private folder of a user's runs: local sockets, tokens of addresses of this host.
#pragma once

#include <filesystem>

namespace maestro {

/// Returns $XDG_RUNTIME_DIR/maestro, or /tmp/maestro-UID where that is missing; creates it. Throws JobError: the folder
/// belongs to another user, or is open to others.
[[nodiscard]] std::filesystem::path runtime_folder();

}  // namespace maestro
