// SPDX-License-Identifier: Apache-2.0
// Chooses the address of this machine that a process listens on.
#pragma once

#include <string>
#include <vector>

namespace maestro {

/// The IPv4 address of an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
};
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Resolves a host name on this machine. Throws JobError if it does not resolve.
[[nodiscard]] std::string address_of(const std::string& host);
/// Returns this machine's local address on the route to `host`, without sending anything. Throws JobError if the name
/// does not resolve or no route exists.
[[nodiscard]] std::string address_towards(const std::string& host);

/// Returns the address to listen on. `wanted`: an address, an interface ("eth0"), or "auto": the address that reaches
/// rank 0's host, and on that host the address of its name. `towards` is address_towards(rank 0's host). Pure. Throws
/// JobError that lists the available addresses.
[[nodiscard]] std::string choose_listen_address(const std::string& wanted, const std::string& towards,
                                                const std::vector<InterfaceAddress>& here);

/// Returns the name of this machine for users: SLURMD_NODENAME, else the host name.
[[nodiscard]] std::string host_name();

}  // namespace maestro
