// SPDX-License-Identifier: Apache-2.0
// How many micro-batches of a section must exist at once so that none of its receivers waits for ever. Sections cut the
// same samples differently: a consumer of 8 samples needs 4 micro-batches of a producer of 2 before it can begin, and
// the producer keeps all four (their buffers, and their activations when gradients come back) until it has. Pure.
//
// FB-1: in_flight is the smallest max_in_flight under which the oldest micro-batch of every section can always retire,
//       when sections go round their replicas. Plans keep a micro-batch until every section behind it has run it, also
//       one that sends no gradient. For a section that follows its consumer see most_needed_at_once.
// FB-2: with send_blocks blocks per port and gradient_blocks per input no pass of a plan that obeys planned_slots and
//       max_in_flight waits for a block for ever. Proof: take the pass that is first in the plan of those that have not
//       run. All before it have, so at most as many blocks are held as the plan itself holds at that time.
//
// The numbers are those of each rank of a replica: it has rings and blocks of its own, and every micro-batch takes one
// of them, also where the rank holds no row; the replica's ranks start and end a pass together.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct FlowLimits {
  std::int64_t slots = 1;             ///< per edge and consumer replica, as the job wants
  std::int64_t train_samples = 1;     ///< of a global batch
  std::int64_t evaluate_samples = 0;  ///< of a validation pass; 0: none
  std::int64_t most_slots = 64;       ///< that a ring can have: a write names its slot in 6 bits
};

/// FB-1 for every section. The graph must be validated. O(samples x edges) time.
[[nodiscard]] std::vector<std::int64_t> in_flight_bounds(const SectionGraph& graph, std::int64_t train_samples);

/// Slots per consumer replica that a plan reckons with on an edge whose producer does not await gradients: those of the
/// job, but enough for the inputs of one micro-batch beside those that its producers' outputs have for later ones.
[[nodiscard]] std::int64_t planned_slots(const SectionGraph& graph, EdgeId edge, const FlowLimits& limits);
/// Slots of the rings that a section receives into. One that awaits gradients holds its inputs until the backward pass.
[[nodiscard]] std::int64_t input_window(const SectionGraph& graph, SectionId section, const FlowLimits& limits);
/// Blocks of an output port (FB-2).
[[nodiscard]] std::int64_t send_blocks(const SectionGraph& graph, SectionId section, const FlowLimits& limits);
/// Blocks for the gradients that go back over an edge (FB-2).
[[nodiscard]] std::int64_t gradient_blocks(const SectionGraph& graph, EdgeId edge, const FlowLimits& limits);

}  // namespace maestro
