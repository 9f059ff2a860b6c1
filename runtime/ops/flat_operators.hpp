// SPDX-License-Identifier: Apache-2.0
// Operators on flat vectors in the table's memory(): the optimizer, norms and sums of gradients. A part of
// operators.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/dtype.hpp"
#include "runtime/core/pending.hpp"
#include "runtime/core/tensor.hpp"

namespace maestro {

struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;        ///< from 1, for the bias corrections
  double gradient_scale = 1.0;  ///< clipping factor applied to the gradient first
};

/// AdamW (Loshchilov & Hutter 2019) on flat ranges of equal length; also sets the gradient to zero. The step is
/// computed in f32. Moments in bf16 are rounded at random when they are stored (element::AdamW::rounded_at_random).
struct AdamW {
  std::span<float> value{};
  std::span<float> gradient{};
  Tensor mean{};      ///< f32 or bf16; the first moment
  Tensor variance{};  ///< same dtype as `mean`; the second moment
  AdamWStep step{};
  std::span<bfloat16> rounded{};  ///< the new values rounded to bf16; or empty
};

/// The sum of squares in a fixed order, accumulated in f64.
struct SumOfSquares {
  using Result = Pending<double>;
  std::span<const float> values{};
};

/// into += values.
struct AddInto {
  std::span<float> into{};
  std::span<const float> values{};
};

}  // namespace maestro
