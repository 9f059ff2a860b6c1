// SPDX-License-Identifier: Apache-2.0
// Finds state among the surviving replicas, after the loss of a process, with which the run can continue. Pure.
//
// RP-1 (joined sections agree): sections joined by gradients, stages or shared norms are taken at the same step.
// RP-2 (ahead): joined sections may have trained beyond the last finished step if no other section reads their outputs:
//       the continued run leaves them out until it reaches their step.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "actors/messages/messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct RescuePoint {
  std::map<SectionId, std::size_t> writers;  ///< index in `standing` of a replica of each trained section
  std::map<SectionId, StepId> ahead;         ///< sections beyond `finished`, trained or passing, with their step
};

/// `finished`: the last step that all sections have finished. Returns nothing if some section's state at that step or
/// later is lost.
[[nodiscard]] std::optional<RescuePoint> rescue_point(const SectionGraph& graph, bool joined_norms, StepId finished,
                                                      std::span<const StandsStill> standing);

}  // namespace maestro
