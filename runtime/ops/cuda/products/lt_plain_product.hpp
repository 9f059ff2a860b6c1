// SPDX-License-Identifier: Apache-2.0
// Products without cuBLASLt, for shapes and alignments that the library does not support.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/products/lt_plan.hpp"

namespace maestro::cuda {

/// Computes the plan's product, for epilogues `none` and `bias` (asserted) and operands of equal dtype; any size, and
/// any alignment that the dtypes allow. Sums run over the inner side in order, in f32. Correct, not fast: 32 x 32 tiles
/// through shared memory without tensor cores.
void plain_product(const Launch& at, const ProductPlan& plan, const ProductPointers& pointers);

/// Computes D += the vector along its rows, for a product that the library computes without its bias.
void add_bias(const Launch& at, const ProductPlan& plan, const ProductPointers& pointers);

}  // namespace maestro::cuda
