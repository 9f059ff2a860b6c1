// SPDX-License-Identifier: Apache-2.0
// The phases of a bulk-synchronous step: how many passes each has left, by group. Pure; not thread-safe.
//
// PH-1 (one after another): a phase of a group opens when every pass of the phases before it has ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/lane_key.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

class PhaseCounts {
 public:
  /// A phase whose passes may run now, on these lanes.
  struct Opening {
    std::uint32_t group = 0;
    std::uint32_t phase = 0;
    std::vector<LaneKey> lanes;
  };

  PhaseCounts() = default;
  PhaseCounts(const SectionGraph& graph, const StepPlan& plan);
  /// Returns the first phases of groups without a phase 0, which is always open.
  [[nodiscard]] std::vector<Opening> first() const;
  /// Records that a pass of the phase has ended. Returns the phase that opens with it.
  [[nodiscard]] std::optional<Opening> done(std::uint32_t group, std::uint32_t phase);

 private:
  struct Group {
    std::map<std::uint32_t, std::int64_t> left;  // passes by phase
    std::set<LaneKey> lanes;
  };
  [[nodiscard]] Opening opening(std::uint32_t group) const;
  std::map<std::uint32_t, Group> groups_;
};

}  // namespace maestro
