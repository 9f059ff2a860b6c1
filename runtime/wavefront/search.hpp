// SPDX-License-Identifier: Apache-2.0
// Simulated annealing over dispatch rules: the orders of the sections, and the switches.
//
// AN-1 (prefix): the candidates tried do not depend on the budget; a shorter search tries the first of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "runtime/core/random.hpp"
#include "runtime/wavefront/simulator/simulator.hpp"

namespace maestro {

/// Limit of a search: evaluations, simulator steps, or a time, whichever is given; a search always ends when a schedule
/// of `good_enough_ms` is found.
struct SearchBudget {
  std::int64_t evaluations = 0;
  std::int64_t steps = 0;
  std::optional<std::chrono::steady_clock::time_point> until;
  double good_enough_ms = 0;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

/// The part of its budget that a search has used.
class Spending {
 public:
  explicit Spending(const SearchBudget& budget) : budget_(budget) {}
  /// Runs the simulator and counts the evaluation and its steps.
  double run(Simulator& simulator, const DispatchRules& rules, double cutoff_ms);
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// Returns 0 at the start, 1 when the budget is spent.
  [[nodiscard]] double share() const;
  [[nodiscard]] double good_enough_ms() const { return budget_.good_enough_ms; }

 private:
  const SearchBudget budget_;
  std::int64_t evaluations_ = 0;
  std::int64_t steps_ = 0;
};

struct Candidate {
  DispatchRules rules;
  double makespan_ms = 0;
};

/// Anneals from `start` until the budget is spent; returns the best candidate seen, which is `start` if none is
/// shorter. Calls `improved` with each candidate that is shorter than all before; it must not use the simulator.
Candidate anneal(Simulator& simulator, const PlanningGraph& graph, const Candidate& start, Spending& spending,
                 Random& random, const std::function<void(const Candidate&)>& improved = {});

}  // namespace maestro
