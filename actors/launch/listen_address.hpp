// SPDX-License-Identifier: Apache-2.0
// On which address of this machine a process listens.
#pragma once

#include <string>
#include <vector>

namespace maestro {

/// An IPv4 address of an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
};
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// What a name stands for here. Throws JobError when it does not resolve.
[[nodiscard]] std::string address_of(const std::string& host);
/// The address from which this machine reaches `host`, by its routes; nothing is sent. Throws JobError: the name does
/// not resolve, there is no route.
[[nodiscard]] std::string address_towards(const std::string& host);

/// `wanted`: an address, an interface ("eth0"), or "auto": the one that leads to rank 0's host, and on that host itself
/// the one that its name stands for. `towards` is address_towards(rank 0's host). Pure. Throws JobError with what there
/// is.
[[nodiscard]] std::string choose_listen_address(const std::string& wanted, const std::string& towards,
                                                const std::vector<InterfaceAddress>& here);

/// The name that people know this machine by: SLURMD_NODENAME, else the host name.
[[nodiscard]] std::string host_name();

}  // namespace maestro
