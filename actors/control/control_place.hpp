// SPDX-License-Identifier: Apache-2.0
// Where the control services of a user's runs are found on this host: in runtime_folder(), with a socket
// per run, named by its pid, and a token per TCP address that is of this host only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace maestro {

/// "unix:<folder>/<pid>.sock" of this process. Throws JobError.
[[nodiscard]] std::string default_control_address();

/// The file with the token of a TCP address of this host.
[[nodiscard]] std::filesystem::path token_file(const std::string& address);

/// Addresses at which somebody listens; what dead processes have left is removed. Throws JobError.
[[nodiscard]] std::vector<std::string> control_addresses();

/// Throws JobError when nobody can listen at `address`; "none" and an empty one are right.
void check_control_address(const std::string& address);

/// Removes the sockets and tokens that dead processes have left in runtime_folder(). Files of the last ten seconds
/// stay: their process may be about to listen.
void sweep_runtime_folder() noexcept;
/// Removes the sockets there of a process of this run that is dead. Never fails: what stays is swept later.
void remove_sockets_of(std::int64_t pid) noexcept;

}  // namespace maestro
