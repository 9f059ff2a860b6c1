// SPDX-License-Identifier: Apache-2.0
#include "runtime/fleet/fleet_cluster.hpp"

namespace maestro {

FleetCluster fleet_cluster_of(const DescribedCluster& described) {
  return {.name = described.name,
          .pools = {{.kind = described.name,
                     .hosts = described.hosts,
                     .devices_of_host = described.devices_of_host,
                     .price_per_hour = described.price_per_hour,
                     .memory_bytes = described.memory_bytes,
                     .any_kind = true}}};
}

}  // namespace maestro
