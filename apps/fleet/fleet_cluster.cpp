// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_cluster.hpp"

namespace maestro {

FleetCluster fleet_cluster_of(const DescribedCluster& described) {
  FleetCluster cluster{described.name, {}};
  for (const DescribedPool& pool : described.pools) {
    cluster.pools.push_back({pool.kind, pool.hosts, pool.devices_of_host, pool.price_per_hour, pool.memory_bytes});
  }
  return cluster;
}

}  // namespace maestro
