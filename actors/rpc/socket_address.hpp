// SPDX-License-Identifier: Apache-2.0
// Where a service listens, as people write it, and sockets that listen or are connected there. Errors are JobErrors of
// one line.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/state/posix_file.hpp"

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

/// Whether it is a local socket, or an address of 127.0.0.0/8, or "localhost".
[[nodiscard]] bool on_this_host_only(const SocketAddress& address);

/// Listens, non-blocking. A local socket is its user's alone (mode 0600), makes its folder (0700) and takes the place
/// of one whose process has died. Fills in the port. Throws JobError.
[[nodiscard]] FileDescriptor listen_at(SocketAddress& address);

/// A connected socket, non-blocking; the name is looked up first, which the system bounds, not `patience`.
/// Throws JobError; `service` is what is looked for there.
[[nodiscard]] FileDescriptor connect_to(const SocketAddress& address, const std::string& service,
                                        std::chrono::milliseconds patience);

/// Who is at the other end of an accepted socket: "10.0.0.3:4711", or "process 4711".
[[nodiscard]] std::string peer_name(int socket);

}  // namespace maestro
