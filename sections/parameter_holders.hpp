// SPDX-License-Identifier: Apache-2.0
// The list of a rank's parameters by their holders: which ranks of the replica hold them, over which groups their
// gradients are summed at the end of a step, and which rank counts and stores them. Norm, gradient sums, checkpoints
// and versions of weights follow the list.
//
//   holding        groups of the sum   counted by
//   tensor parts   context             the first context part
//   replicated     tensor, context     the first rank
//   expert parts   copies              the first copy
//
// EM-1 (one home): under each mapping a micro-batch's rows, and its routes' rows, are each on a single rank.
// EM-2 (sum over holders): a parameter's gradient is summed over exactly the ranks that hold it.
// EM-3 (even in dry passes): in memory without values the counts of routes are unknown; then each rank's routes are
//       spread evenly over all experts (ExpertRows).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "sections/section.hpp"

namespace maestro {

/// The spans of a rank's gradients that the same ranks hold.
struct HeldGradients {
  std::vector<std::span<float>> spans;
  std::array<Communicator*, 2> groups = {};  ///< groups that add them up, in this order; null: none
  bool counted = false;                      ///< this rank counts them in the section's norm
};

/// Returns the gradients of a trained section's rank by holders.
[[nodiscard]] std::vector<HeldGradients> held_gradients(const Parameters& parameters, const ParallelContext& parallel);
/// Returns whether the rank counts and stores parameters with this holding: a single rank does for each element.
[[nodiscard]] bool is_counted(const ParallelContext& parallel, Holding holding);
/// Sums each gradient over the ranks that hold it (EM-2). A collective of all ranks.
void sum_over_holders(const Parameters& parameters, const ParallelContext& parallel);

}  // namespace maestro
