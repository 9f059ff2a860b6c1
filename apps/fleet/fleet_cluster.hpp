// SPDX-License-Identifier: Apache-2.0
// The devices that several jobs share. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/rehearsal/described_cluster.hpp"

namespace maestro {

/// Equal hosts with equal devices.
struct FleetPool {
  std::string kind;  ///< kind of the devices
  std::int64_t hosts = 1;
  std::int64_t devices_of_host = 1;
  double price_per_hour = 0;  ///< price per host; 0: unknown
  double memory_bytes = 0;    ///< memory per device; 0: unknown
  [[nodiscard]] std::int64_t devices() const { return hosts * devices_of_host; }
};

struct FleetCluster {
  std::string name;
  std::vector<FleetPool> pools;
  [[nodiscard]] std::int64_t devices() const {
    std::int64_t sum = 0;
    for (const FleetPool& pool : pools) sum += pool.devices();
    return sum;
  }
};

/// Returns the pools of a described cluster.
[[nodiscard]] FleetCluster fleet_cluster_of(const DescribedCluster& described);

}  // namespace maestro
