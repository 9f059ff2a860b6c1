// SPDX-License-Identifier: Apache-2.0
// AdamW with a learning-rate schedule and clipping by norm, over the flat buffers of a section's parameters.
#pragma once

#include <cstdint>

#include "runtime/collective/communicator.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/config.hpp"
#include "runtime/ops/operator_table.hpp"
#include "runtime/ops/parameters.hpp"

namespace maestro {

/// Figures of an optimizer step, as reported.
struct OptimizerStep {
  double lr = 0;
  double norm = 0;  ///< norm of the gradient, before clipping
};

/// Holds only settings: Parameters holds the moments, the caller the step count. Thread-safe.
class AdamWOptimizer {
 public:
  /// A schedule of `steps` steps that begins after `begun` steps.
  struct Span {
    std::int64_t steps = 0;
    std::int64_t begun = 0;
    Span(std::int64_t all, std::int64_t before = 0)  // NOLINT(google-explicit-constructor): a number of steps
        : steps(all), begun(before) {}
  };
  /// Throws JobError if the schedule is unknown. A warm-up longer than the schedule is cut off with it, so that a short
  /// trial of a long job keeps its settings.
  AdamWOptimizer(const OptimizerConfig& config, Span span);

  /// Returns the learning rate of `step`, counted from 1 after `begun`, if W of N steps are the warm-up:
  ///   step <= W          lr * step / W
  ///   else, with p = (step - 1 - W) / (N - W), at most 1
  ///     cosine           min_lr + (lr - min_lr) (1 + cos(pi p)) / 2      (Loshchilov & Hutter 2017, one period)
  ///     linear           lr + (min_lr - lr) p
  ///     constant         lr
  /// The first step after the warm-up has the full lr; min_lr is reached after the last step, so that no step is spent
  /// at min_lr = 0.
  [[nodiscard]] double learning_rate(std::int64_t step) const;

  /// Returns the Euclidean norm of the section's gradients, in a fixed order; without counts (UpdateRule). The calls of
  /// `ops` must be complete when they return.
  [[nodiscard]] static double gradient_norm(const OperatorTable& ops, const Parameters& parameters);
  /// Returns the factor that brings a gradient of `norm` down to clip_norm: min(1, clip_norm / norm); 1 if clipping is
  /// off. A norm that is not finite is an error (invalid_argument): stepping would destroy the parameters.
  [[nodiscard]] Result<double> clip_factor(double norm) const;

  /// Steps by AdamW (Loshchilov & Hutter 2019) with the gradient multiplied by `clip_factor` first; weight decay
  /// applies only to the decayed range (PA-1). `number` is the step's, from 1, for the learning rate; bias corrections
  /// count the updates that were made (Parameters::updates), as PyTorch does for parameters without a gradient.
  /// Gradients are zero afterwards, packed weights out of date (PA-2). Only elements whose moments are here are changed
  /// (Parameters::kept_moments), to the same values as in an update of all. Parameters with another rule are stepped
  /// by it; `tokens` are the section's in the step. Ranks of `tensor_group` that hold columns of a table's rows add up
  /// their squares: then the call is a collective.
  void step(const OperatorTable& ops, Parameters& parameters, std::int64_t number, double clip_factor,
            std::int64_t tokens = 1, Communicator* tensor_group = nullptr) const;

 private:
  OptimizerConfig config_;
  Span span_;
};

}  // namespace maestro
