// SPDX-License-Identifier: Apache-2.0
// Losses of logits that are cut over the vocabulary, with the collectives between their kernels (loss_parts.hpp).
#pragma once

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/cuda/losses/loss_parts.hpp"

namespace maestro::cuda {

/// Called by all ranks of `group` at once, each with its part; the group works on device memory and on the stream of
/// `at`. Losses are the same on every rank; the gradient of each rank's columns replaces its logits.
void cut_loss_rows(const Launch& at, const LossPart& part, Communicator& group);

}  // namespace maestro::cuda
