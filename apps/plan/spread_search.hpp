// SPDX-License-Identifier: Apache-2.0
// Layouts with a section on several pools of unlike devices: each section without shared devices is tried, with the
// others on the fewest devices for a given step, by bisection over its time. Decides by bounds, without
// rehearsals.
#pragma once

#include <string>
#include <vector>

#include "apps/plan/divisions.hpp"

namespace maestro {

struct SpreadLayouts {
  struct Found {
    std::string text;  ///< RivalDivision::text
    ClusterLayouts layouts;
  };
  std::vector<Found> worth;          ///< different layouts whose bounds are below the step
  double least_bound_ms = infinite;  ///< least bound of all that were tried
  double apart_bound_ms = infinite;  ///< least bound if no sections share devices
};

/// `candidates`: divisions on single pools; `step_ms`: the fastest step so far.
[[nodiscard]] SpreadLayouts spread_layouts(const ClusterJob& job, const Divisions& divisions,
                                           const std::vector<DivisionCandidate>& candidates, double step_ms);

}  // namespace maestro
