// SPDX-License-Identifier: Apache-2.0
// The gated delta rule as differentiable operators. A part of functions.hpp, whose rules hold here.
#pragma once

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/functions.hpp"

namespace maestro {

/// The values of a delta rule's heads, (Hv) f32 each.
struct DeltaWeights {
  Parameter* a_log = nullptr;
  Parameter* dt_bias = nullptr;
};

/// Returns DeltaRule's result (M, Hv dv) act of qkv (M, 2 Hk dk + Hv dv) act and gates (M, 2 Hv) act. The layout's
/// arrays must live until the backward pass.
/// With a group, rows are cut over it, (M_c, ...), `layout` being of all M rows: ranks exchange rows for heads, so that
/// each computes all rows of its heads, and back. A rank computes the weights' gradients of its own heads only; the
/// caller adds them up over the group. Throws ShapeError unless the group's size divides the key heads.
Var delta_rule(Tape& tape, const Var& qkv, const Var& gates, const DeltaWeights& weights, const DeltaShape& shape,
               const SequenceLayout& layout, Communicator* context = nullptr);
/// Computes delta_rule() for a sequence's rows after the first `cache.first`, or for the next row of each of
/// `cache.sequences`, and replaces the cache's states. No gradient.
Var cached_delta(Tape& tape, const Var& qkv, const Var& gates, const DeltaWeights& weights, const DeltaShape& shape,
                 const LayerCache& cache);

}  // namespace maestro
