// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_part.hpp"

#include <algorithm>
#include <numeric>

namespace maestro {

bool equal_samples(const std::vector<TracedUnit>& units) {
  const auto like_the_first = [&](const SampleRef& sample) { return sample.same_size(units.front().samples.front()); };
  return std::ranges::all_of(units,
                             [&](const TracedUnit& unit) { return std::ranges::all_of(unit.samples, like_the_first); });
}

std::int64_t equal_parts(const ClusterLayouts& layouts, std::int64_t samples, std::int64_t least) {
  std::int64_t common = samples;
  std::int64_t fewest = samples;
  for (const auto& [section, on] : layouts) {
    for (const PoolShare& share : on.shares()) common = std::gcd(common, share.replicas);
    fewest = std::min(fewest, on.layout.replicas);
  }
  for (std::int64_t parts = std::min(common, fewest / least); parts > 1; --parts) {
    const auto whole_batches = [&](const auto& entry) {
      return samples / parts % entry.second.layout.micro_batch == 0;
    };
    if (common % parts == 0 && std::ranges::all_of(layouts, whole_batches)) return parts;
  }
  return 1;
}

ClusterLayouts part_of(ClusterLayouts layouts, std::int64_t parts) {
  for (auto& [section, on] : layouts) {
    on.layout.replicas /= parts;
    for (PoolShare& share : on.more) share.replicas /= parts;
  }
  return layouts;
}

std::vector<TracedUnit> part_of(const std::vector<TracedUnit>& units, std::int64_t parts) {
  std::vector<TracedUnit> made;
  for (const TracedUnit& unit : units) {
    TracedUnit& part = made.emplace_back();
    part.step = unit.step;
    part.samples.assign(unit.samples.begin(), unit.samples.begin() + std::ssize(unit.samples) / parts);
  }
  return made;
}

}  // namespace maestro
