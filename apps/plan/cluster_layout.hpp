// SPDX-License-Identifier: Apache-2.0
// Layouts of a job's sections on the pools of a described cluster, with their bounds and bytes. Values; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/plan/layout_search.hpp"
#include "runtime/rehearsal/described_cluster.hpp"

namespace maestro {

inline constexpr double infinite = std::numeric_limits<double>::infinity();

/// Consecutive replicas of a section on a pool.
struct PoolShare {
  std::size_t pool = 0;  ///< index in DescribedCluster::pools
  std::int64_t replicas = 0;
  double rate = 0;  ///< units of the job's cost model per millisecond of a pass
  friend bool operator==(const PoolShare&, const PoolShare&) = default;
};

/// A layout of a section on the cluster.
struct ClusterLayout {
  SectionLayout layout;
  std::size_t pool = 0;         ///< pool of the first replicas, an index in DescribedCluster::pools
  std::vector<PoolShare> more;  ///< following replicas, on other pools
  std::size_t group = 0;        ///< sections of a group share their devices
  double bound_ms = 0;          ///< bound of a step (ClusterLanes)
  double work_ms = 0;           ///< work of each device in a step, without exchanges and waits
  double bytes = 0;             ///< memory needed per device, estimated by a dry pass
  double resting_bytes = 0;     ///< part of `bytes` that is needed without micro-batches
  double pass_bytes = 0;        ///< memory of a micro-batch
  std::int64_t in_flight = 0;   ///< max_in_flight; 0: the plan does not set it
  double rate = 0;              ///< PoolShare::rate of the first replicas
  /// Returns all replicas by pool, the first pool first.
  [[nodiscard]] std::vector<PoolShare> shares() const;
  /// Sets max_in_flight, and the bytes with it.
  void keep_in_flight(std::int64_t batches);
};

using ClusterLayouts = std::map<std::string, ClusterLayout>;  // by section

/// Returns whether all sections have the same layouts on the same pools, in the same groups.
[[nodiscard]] bool same_layouts(const ClusterLayouts& one, const ClusterLayouts& other);

/// Returns the bound of the slowest section, or the work of the busiest group if that takes longer.
[[nodiscard]] double bound_of(const ClusterLayouts& layouts);

/// Returns the work of the busiest group's devices if the passes of a section take `longer` times as long (at most 1).
/// No step and no rehearsal takes less.
[[nodiscard]] double busiest_ms(const ClusterLayouts& layouts, const std::string& section = {}, double longer = 1);

/// Returns the prices of exchanges between replicas on these pools. If there are several, the slowest network between
/// them limits a ring, and no two replicas count as on the same host.
[[nodiscard]] DescribedPrices exchange_prices(const DescribedCluster& cluster, std::span<const PoolShare> shares);

}  // namespace maestro
