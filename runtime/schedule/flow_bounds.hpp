// How many micro-batches of a section must exist at once so that none of its receivers waits for ever. Sections cut the
// same samples differently: a consumer of 8 samples needs 4 micro-batches of a producer of 2 before it can begin, and
// the producer keeps all four (their buffers, and their activations when gradients come back) until it has. Pure.
//
// FB-1: in_flight is the smallest max_in_flight under which the oldest micro-batch of every section can always retire,
//       whatever the order of events: with less, a section waits for a gradient that needs its own next forward pass.
// FB-2: with `buffers` blocks per port no forward pass that the oldest unfinished sample needs waits for a block.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct FlowBounds {
  std::int64_t in_flight = 1;  ///< micro-batches per replica between forward and backward
  std::int64_t buffers = 1;    ///< blocks per port and replica
};

/// Bounds of every section. `train_samples`: of a global batch; `evaluate_samples`: of a validation pass, 0 for none.
/// The graph must be validated. O(samples x edges) time.
[[nodiscard]] std::vector<FlowBounds> flow_bounds(const SectionGraph& graph, std::int64_t train_samples,
                                                  std::int64_t evaluate_samples);

/// Blocks per port and replica, beyond those of FB-2, with which a section can fill `slots` slots of all its consumers:
/// hand-over keeps a micro-batch in its producer's buffer until the consumer has retired it.
[[nodiscard]] std::int64_t run_ahead_buffers(const SectionGraph& graph, SectionId section, std::int64_t slots);

}  // namespace maestro
