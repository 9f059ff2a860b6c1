// SPDX-License-Identifier: Apache-2.0
// Addresses of services as users write them, and sockets that listen there or are connected to them. Errors are
// JobErrors with a single line.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/files/posix_file.hpp"

namespace maestro {

/// An address: "unix:/path" or "host:port".
struct SocketAddress {
  std::filesystem::path path;  ///< path of a local socket; else empty
  std::string host;
  std::uint16_t port = 0;
  [[nodiscard]] bool local() const { return !path.empty(); }
  [[nodiscard]] std::string text() const;
};

/// Parses an address. Throws JobError.
[[nodiscard]] SocketAddress parse_socket_address(const std::string& text);

/// Returns whether the address is a local socket, an address of 127.0.0.0/8, or "localhost".
[[nodiscard]] bool on_this_host_only(const SocketAddress& address);

/// Listens, non-blocking. A local socket belongs to its user (mode 0600); listening creates its folder (0700) and
/// replaces the socket of a dead process. Sets the port. Throws JobError.
[[nodiscard]] FileDescriptor listen_at(SocketAddress& address);

/// Returns a connected, non-blocking socket. The system, not `patience`, bounds the lookup of the name. `service`: name
/// of the expected service in messages. Throws JobError.
[[nodiscard]] FileDescriptor connect_to(const SocketAddress& address, const std::string& service,
                                        std::chrono::milliseconds patience);

/// Returns the name of an accepted socket's other end: "10.0.0.3:4711", or "process 4711".
[[nodiscard]] std::string peer_name(int socket);

}  // namespace maestro
