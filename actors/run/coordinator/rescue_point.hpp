// SPDX-License-Identifier: Apache-2.0
// The state that the survivors of a lost process hold together, and that a run can go on from. Pure.
//
// RP-1 (joined sections agree): sections that are joined by gradients, by stages or by norms that are answered together
//       are taken at the same step.
// RP-2 (ahead): joined sections may have trained further than the last finished step if no other section reads their
//       outputs: the run goes on without work for them until it reaches their step.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "actors/messages/messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct RescuePoint {
  std::map<SectionId, std::size_t> writers;  ///< of each trained section: the place of its replica in `standing`
  std::map<SectionId, StepId> ahead;         ///< sections, trained or passing, and their step, where it is later
};

/// `finished`: the last step that all sections have finished. Returns nothing if a section's state after that step is
/// lost.
[[nodiscard]] std::optional<RescuePoint> rescue_point(const SectionGraph& graph, bool joined_norms, StepId finished,
                                                      std::span<const StandsStill> standing);

}  // namespace maestro
