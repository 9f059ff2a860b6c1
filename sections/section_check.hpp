// SPDX-License-Identifier: Apache-2.0
// Checks the backward pass of a section against its forward pass, for tests of a section type.
//
// SK-1 (along directions): for each parameter and each differentiable input, the derivative along a random direction of
//       length 1 from the backward pass equals the central difference of two forward passes.
// SK-2 (every output): the derived function is the sum of the metric "loss" and of all outputs, multiplied by random
//       values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sections/section.hpp"

namespace maestro {

struct GradientCheckOptions {
  std::uint64_t seed = 1;
  std::vector<std::int64_t> rows{5, 3, 7};  ///< row counts of the micro-batch's samples
  std::int64_t below = 16;                  ///< upper bound of i32 inputs, such as token ids
  double distance = 1e-2;                   ///< distance of the two forward passes from the values, along a direction
};

/// A derivative along a direction.
struct GradientCheck {
  std::string name;     ///< name of the parameter or input port
  double backward = 0;  ///< derivative from the backward pass
  double forward = 0;   ///< derivative from differences of the forward pass
  /// Returns whether they differ by at most this part of the larger one; values below 1e-4 count as 1e-4.
  [[nodiscard]] bool agrees(double tolerance = 0.02) const;
  /// Returns "embedding.weight: 0.125 by the backward pass, 0.124 by differences of the forward pass".
  [[nodiscard]] std::string text() const;
};

/// Builds a trained section on the CPU and checks it with random inputs, fp32 and i32. Throws JobError for other inputs
/// or a section with neither parameters nor differentiable inputs, and std::logic_error for outputs that do not fit.
[[nodiscard]] std::vector<GradientCheck> check_gradients(const SectionFactory& factory,
                                                         const GradientCheckOptions& options = {});

}  // namespace maestro
