// SPDX-License-Identifier: Apache-2.0
// Coefficients that all parameters of an AdamW step share.
#pragma once

#include <cmath>

#include "runtime/core/random.hpp"
#include "runtime/ops/element_math.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

/// Returns the coefficients of `step`: computed in f64, each rounded once.
[[nodiscard]] inline element::AdamW adamw_coefficients(const AdamWStep& step) {
  const auto steps = static_cast<double>(step.step);
  return {.keep = static_cast<float>(1.0 - step.lr * step.weight_decay),
          .step_size = static_cast<float>(step.lr / (1.0 - std::pow(step.beta1, steps))),
          .inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(step.beta2, steps))),
          .beta1 = static_cast<float>(step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_less_beta1 = static_cast<float>(1.0 - step.beta1),
          .one_less_beta2 = static_cast<float>(1.0 - step.beta2),
          .epsilon = static_cast<float>(step.epsilon),
          .gradient_scale = static_cast<float>(step.gradient_scale),
          .seed = static_cast<std::uint32_t>(mix64(static_cast<std::uint64_t>(step.step)))};
}

}  // namespace maestro
