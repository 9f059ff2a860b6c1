// SPDX-License-Identifier: Apache-2.0
// Divisions that ClusterPlanner has examined and not chosen, and how sure a choice is compared with them. Rivals owns
// the list; not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "apps/plan/certainty.hpp"
#include "apps/plan/trial_bench.hpp"

namespace maestro {

/// Another division of the sections into groups that was examined, and not chosen.
struct RivalDivision {
  std::string text;  ///< "teacher and student together"
  ClusterLayouts layouts;
  double step_ms = 0;     ///< the rehearsed step, or the work of its busiest device
  bool rehearsed = true;  ///< false: its busiest device works longer than the choice's step
  double price_per_hour = 0;
  double more = 0;  ///< a step's time, or its cost if cost is minimized, as a share above the choice
};

class Rivals {
 public:
  void add(const LayoutTrial& rival, double step_ms, bool rehearsed = true);
  /// Returns the rehearsed rivals within a twentieth of a step, the two shortest at most.
  [[nodiscard]] std::vector<RivalDivision> close_to(double step_ms) const;
  /// Returns the fastest rival of each text, without the choice's text, ordered by their cost.
  [[nodiscard]] std::vector<RivalDivision> of(const LayoutTrial& choice, bool cheapest) const;

 private:
  std::vector<RivalDivision> all_;
};

/// Returns how far the passes of each section may be off before a rival is faster than the choice by over a hundredth,
/// as far as rehearsals of limited size show it; `critical` is examined first.
[[nodiscard]] std::vector<Certainty> certainties(const ClusterJob& job, TrialBench& bench, const LayoutTrial& choice,
                                                 const std::vector<RivalDivision>& rivals, const std::string& critical);

}  // namespace maestro
