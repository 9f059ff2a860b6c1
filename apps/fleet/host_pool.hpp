// SPDX-License-Identifier: Apache-2.0
// A pool's devices by host. Pure; not thread-safe.
//
// HU-1 (conserved): free devices and the devices of all places add up to the pool's devices.
// HU-2 (whole hosts first): a place takes complete hosts while it needs as many devices and a host is free. The rest is
//       on the host with the fewest sufficient free devices, else on the hosts with most free devices.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace maestro {

/// Devices by host.
using HostPlaces = std::map<std::size_t, std::int64_t>;

class HostPool {
 public:
  HostPool(std::int64_t hosts, std::int64_t devices_of_host)
      : devices_of_host_(devices_of_host),
        free_(static_cast<std::size_t>(hosts), devices_of_host),
        all_free_(hosts * devices_of_host) {}

  [[nodiscard]] std::int64_t free() const { return all_free_; }
  /// Adds devices to places. Throws std::logic_error if too few are free.
  void take(std::int64_t devices, HostPlaces& places);
  /// Takes places back. Throws std::logic_error for more devices than a host has.
  void give_back(const HostPlaces& places);
  /// Returns whether the places are on more hosts than needed.
  [[nodiscard]] bool spread(const HostPlaces& places) const;

 private:
  [[nodiscard]] std::size_t host_for(std::int64_t devices) const;
  std::int64_t devices_of_host_;
  std::vector<std::int64_t> free_;  // by host
  std::int64_t all_free_;
};

/// Removes devices from places, from the hosts with most of its devices first. Returns the removed places.
[[nodiscard]] HostPlaces split_off(HostPlaces& places, std::int64_t devices);

}  // namespace maestro
