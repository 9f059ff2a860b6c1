// SPDX-License-Identifier: Apache-2.0
// Files in runtime_folder() that let clients on this host find the control services of a user's runs: a socket per run,
// named by its pid, and a token per TCP address that only this host reaches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/process_identity.hpp"

namespace maestro {

/// Returns "unix:<folder>/<pid>.sock" of this process. Throws JobError.
[[nodiscard]] std::string default_control_address();

/// Returns the file with the token of a TCP address of this host.
[[nodiscard]] std::filesystem::path token_file(const std::string& address);

/// Returns the addresses with a listener, and removes the files of dead processes. Throws JobError.
[[nodiscard]] std::vector<std::string> control_addresses();

/// Throws JobError if no service can listen at `address`; "none" and an empty address are valid.
void check_control_address(const std::string& address);

/// Removes dead processes' sockets and tokens from runtime_folder(), except files of the last ten seconds, whose
/// process may be about to listen.
void sweep_runtime_folder() noexcept;
/// Removes a dead process' sockets from runtime_folder(). Never fails: a later sweep removes the rest.
void remove_sockets_of(std::int64_t pid) noexcept;
/// Removes a dead process' sockets, unless it is from another PID namespace: a living process here may have its number
/// (PI-1).
void remove_sockets_of(const ProcessIdentity& process) noexcept;

}  // namespace maestro
