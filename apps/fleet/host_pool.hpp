// SPDX-License-Identifier: Apache-2.0
// The devices of a pool by host. Pure; not thread-safe.
//
// HU-1 (conserved): free devices and those of all places are the devices of the pool.
// HU-2 (whole hosts first): places have whole hosts as long as they need as many devices and a host is free; the rest
//       is on the host with the fewest free devices that are enough, else on those with most.
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
  /// Adds devices to places. Throws std::logic_error for more than are free.
  void take(std::int64_t devices, HostPlaces& places);
  /// Takes places back. Throws std::logic_error for more devices than a host has.
  void give_back(const HostPlaces& places);
  /// Whether the places are on more hosts than they need.
  [[nodiscard]] bool spread(const HostPlaces& places) const;

 private:
  [[nodiscard]] std::size_t host_for(std::int64_t devices) const;
  std::int64_t devices_of_host_;
  std::vector<std::int64_t> free_;  // by host
  std::int64_t all_free_;
};

/// Removes devices from places and returns them, from the fullest hosts first.
[[nodiscard]] HostPlaces split_off(HostPlaces& places, std::int64_t devices);

}  // namespace maestro
