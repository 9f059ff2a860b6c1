// SPDX-License-Identifier: Apache-2.0
// How sure a choice of ClusterPlanner is beside the other divisions that were rehearsed.
#include <algorithm>

#include "actors/layouts/cluster_places.hpp"
#include "actors/layouts/cluster_planner.hpp"

namespace maestro {

namespace {

constexpr double close_ms = 0.01;  // share of a step within which a choice counts as the best
/// Micro-batches of a step, of all rehearsals that examine a choice: on thousands of devices one takes seconds.
constexpr std::size_t most_examined = 20'000;

}  // namespace

void ClusterPlanner::compare_rivals(const ClusterLayouts& layouts, ClusterChoice& chosen) {
  const auto cost = [&](double price_per_hour, double step_ms) {
    return options_.cheapest ? price_per_hour * step_ms : step_ms;
  };
  const double best = cost(ClusterPlaces(cluster_, layouts).price_per_hour(), chosen.played.step_ms);
  for (RivalDivision& rival : chosen.rivals) rival.more = cost(rival.price_per_hour, rival.step_ms) / best - 1;
  std::ranges::stable_sort(chosen.rivals, {}, &RivalDivision::more);
  if (!chosen.rivals.empty() && !options_.cheapest) chosen.certainties = certainties(layouts, chosen);
}

bool ClusterPlanner::stays(const ClusterLayouts& layouts, const std::vector<RivalDivision>& rivals,
                           const std::string& section, double longer, std::size_t& left) {
  RehearsalChange change;
  change.faster[section] = 1 / longer;
  const auto step_ms = [&](const ClusterLayouts& of) {
    ++rehearsed_;
    const ClusterRehearsal& rehearsal = rehearsal_of(of);
    left -= std::min(left, rehearsal.passes());
    return rehearsal.play(change).step_ms;
  };
  if (left == 0) return false;
  const double own_ms = step_ms(layouts);
  const RunKeys keys = keys_of_run_;
  keys_of_run_ = {};  // with which the rivals were rehearsed
  const bool stays = std::ranges::all_of(rivals, [&](const RivalDivision& rival) {
    if (own_ms <= busiest_ms(rival.layouts, section, std::min(1.0, longer)) * (1 + close_ms)) return true;
    return left > 0 && own_ms <= step_ms(rival.layouts) * (1 + close_ms);
  });
  keys_of_run_ = keys;
  return stays;
}

std::vector<Certainty> ClusterPlanner::certainties(const ClusterLayouts& layouts, const ClusterChoice& chosen) {
  std::vector<std::string> order{chosen.critical};
  for (const std::string& section : keys_.sections()) {
    if (section != chosen.critical) order.push_back(section);
  }
  std::size_t left = std::max(most_examined, 2 * rehearsal_of(layouts).passes());
  std::vector<Certainty> certain;
  for (const std::string& section : order) {
    if (left == 0) break;
    Certainty& of = certain.emplace_back(Certainty{section});
    const auto farthest = [&](std::initializer_list<double> factors) {
      for (const double longer : factors) {
        if (stays(layouts, chosen.rivals, section, longer, left)) return longer;
      }
      return 1.0;
    };
    of.least = farthest({0.7, 0.8, 0.9});
    of.most = farthest({1.4, 1.25, 1.1});
  }
  return certain;
}

}  // namespace maestro
