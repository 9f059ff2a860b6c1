// SPDX-License-Identifier: Apache-2.0
// Lower bounds on a section's simultaneous micro-batches, so that none of its receivers waits for ever. Sections
// partition the same samples differently: a consumer with 8 samples needs 4 micro-batches from a producer with 2 before
// it can begin, and until then the producer keeps all four (their buffers, and their activations when gradients
// return). Pure.
//
// FB-1 (smallest in-flight limit): in_flight is the smallest max_in_flight under which the oldest micro-batch of every
//       section can always retire, when sections assign micro-batches to their replicas in turn. Plans keep a
//       micro-batch until every downstream section has run it, even a section that sends no gradient. For a section
//       that
//       follows its consumer see most_needed_at_once.
// FB-2 (enough blocks): with send_blocks blocks per port and gradient_blocks per input no pass of a plan that obeys
//       planned_slots and max_in_flight waits for a block for ever. Proof: take the first pass in the plan that has not
//       run. All before it have, so at most as many blocks are held as the plan itself holds at that time.
//
// The numbers hold for each rank of a replica: a rank has separate rings and blocks, and every micro-batch takes a slot
// and a block even if the rank holds no row of it; the replica's ranks start and end a pass together.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct FlowLimits {
  std::int64_t slots = 1;             ///< per edge and consumer replica, as set in the job
  std::int64_t train_samples = 1;     ///< samples in a global batch
  std::int64_t evaluate_samples = 0;  ///< samples in a validation pass; 0: none
  std::int64_t most_slots = 64;       ///< limit of a ring: a write names its slot in 6 bits
};

/// Returns the bound of FB-1 for every section. The graph must be validated. O(samples x edges) time.
[[nodiscard]] std::vector<std::int64_t> in_flight_bounds(const SectionGraph& graph, std::int64_t train_samples);

/// Returns the slots per consumer replica that a plan assumes on an edge whose producer does not await gradients: at
/// least the job's slots, and enough for the inputs of a micro-batch and for the outputs that its producers must have
/// made by then for later micro-batches.
[[nodiscard]] std::int64_t planned_slots(const SectionGraph& graph, EdgeId edge, const FlowLimits& limits);
/// Returns the slots of the rings that a section receives into. A section that awaits gradients holds its inputs until
/// the backward pass.
[[nodiscard]] std::int64_t input_window(const SectionGraph& graph, SectionId section, const FlowLimits& limits);
/// Returns the blocks of an output port (FB-2).
[[nodiscard]] std::int64_t send_blocks(const SectionGraph& graph, SectionId section, const FlowLimits& limits);
/// Returns the blocks for the gradients that return over an edge (FB-2).
[[nodiscard]] std::int64_t gradient_blocks(const SectionGraph& graph, EdgeId edge, const FlowLimits& limits);

}  // namespace maestro
