// SPDX-License-Identifier: Apache-2.0
// Addresses of services as users write them, and sockets that listen or are connected there. Errors are JobErrors of a
// single line.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/files/posix_file.hpp"

namespace maestro {

/// "unix:/path" or "host:port".
struct SocketAddress {
  std::filesystem::path path;  ///< of a local socket; else empty
  std::string host;
  std::uint16_t port = 0;
  [[nodiscard]] bool local() const { return !path.empty(); }
  [[nodiscard]] std::string text() const;
};

/// Throws JobError.
[[nodiscard]] SocketAddress parse_socket_address(const std::string& text);

/// Whether the address is a local socket, an address of 127.0.0.0/8, or "localhost".
[[nodiscard]] bool on_this_host_only(const SocketAddress& address);

/// Listens, non-blocking. A local socket belongs to its user (mode 0600); listening creates its folder (0700) and
/// replaces the socket of a dead process. Sets the port. Throws JobError.
[[nodiscard]] FileDescriptor listen_at(SocketAddress& address);

/// Returns a connected socket, non-blocking; the system, not `patience`, bounds the lookup of the name. Throws
/// JobError; `service`: the expected service, for messages.
[[nodiscard]] FileDescriptor connect_to(const SocketAddress& address, const std::string& service,
                                        std::chrono::milliseconds patience);

/// Returns the other end of an accepted socket: "10.0.0.3:4711", or "process 4711".
[[nodiscard]] std::string peer_name(int socket);

}  // namespace maestro
