// SPDX-License-Identifier: Apache-2.0
// The cells of a job: ClusterPlanner on 1, 2, 4, ... devices of each kind.
#include <algorithm>
#include <limits>

#include "actors/layouts/cluster_planner.hpp"

namespace maestro {

std::vector<ClusterCell> ClusterPlanner::cells() {
  price_all();
  keys_of_run_ = {};
  std::map<std::string, std::size_t> largest;  // pool of each kind
  for (std::size_t pool = 0; pool < cluster_.pools.size(); ++pool) {
    const auto [found, first] = largest.try_emplace(cluster_.pools[pool].kind, pool);
    if (!first && cluster_.pools[pool].devices() > cluster_.pools[found->second].devices()) found->second = pool;
  }
  std::vector<ClusterCell> cells;
  for (const auto& [kind, pool] : largest) {
    const std::int64_t all = cluster_.pools[pool].devices();
    double fastest = std::numeric_limits<double>::infinity();  // of fewer devices
    for (std::int64_t count = 1;; count = std::min(2 * count, all)) {
      std::vector<std::int64_t> devices(cluster_.pools.size());
      devices[pool] = count;
      divide(count);
      const std::vector<Candidate> found = candidates(devices);
      if (!found.empty()) {
        Tried best = best_of(found, devices);
        best.played = played_whole(best.layouts, tuned(best.layouts, std::move(best.played)));
        ClusterCell cell = cell_of(best);
        keys_of_run_ = {};
        cell.pool = pool;
        cell.devices = count;
        if (cell.step_ms < fastest) cells.push_back(cell);
        fastest = std::min(fastest, cell.step_ms);
      }
      if (count == all) break;
    }
  }
  return cells;
}

ClusterCell ClusterPlanner::cell_of(const Tried& tried) const {
  ClusterCell cell;
  cell.sections = tried.layouts;
  cell.step_ms = tried.played.step_ms;
  std::map<std::size_t, double> bytes;  // of a device of each group
  for (const auto& [section, on] : tried.layouts) {
    const SectionShares shares = mean_shares(tried.played.shares, section);
    cell.busy += static_cast<double>(on.layout.devices()) * (shares.passes + shares.step_ends);
    cell.bytes = std::max(cell.bytes, bytes[on.group] += on.bytes);
  }
  cell.busy = std::min(1.0, cell.busy / static_cast<double>(tried.devices));
  cell.price_per_hour = tried.price_per_hour;
  cell.settings = placed(tried.layouts);
  return cell;
}

}  // namespace maestro
