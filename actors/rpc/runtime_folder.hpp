// SPDX-License-Identifier: Apache-2.0
// The private folder of a user's runs, for local sockets and for tokens of this host's addresses.
#pragma once

#include <filesystem>

namespace maestro {

/// Returns $XDG_RUNTIME_DIR/maestro, or /tmp/maestro-UID without that folder; creates it. Throws JobError if the folder
/// belongs to another user, or is open to others.
[[nodiscard]] std::filesystem::path runtime_folder();

}  // namespace maestro
