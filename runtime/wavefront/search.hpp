// Simulated annealing over dispatch rules: the orders of the sections, and the switches.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/core/random.hpp"
#include "runtime/wavefront/simulator.hpp"

namespace maestro {

/// How long to search: evaluations, or until a moment where one is given; in both cases no longer than until a
/// schedule of `good_enough_ms` is found.
struct SearchBudget {
  std::int64_t evaluations = 0;
  std::optional<std::chrono::steady_clock::time_point> until;
  double good_enough_ms = 0;

  /// 0 at the start, 1 when spent. `used` is the number of evaluations so far.
  [[nodiscard]] double spent(std::int64_t used) const;

  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

struct Candidate {
  DispatchRules rules;
  double makespan_ms = 0;
};

/// Anneals from `start` between the parts `from` and `to` of the budget; answers the best seen. `used` counts on.
Candidate anneal(Simulator& simulator, const PlanningGraph& graph, const Candidate& start, const SearchBudget& budget,
                 std::int64_t& used, double to, Random& random);

}  // namespace maestro
