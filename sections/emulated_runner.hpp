// SPDX-License-Identifier: Apache-2.0
// Replaces SectionRunner on an emulated device: nothing is computed. Outputs and gradients carry the buffers' present
// contents, the optimizer steps nothing, and a pass takes the time that the device waits.
#pragma once

#include "sections/section_runner.hpp"

namespace maestro {

class EmulatedRunner final : public SectionRunner {
 public:
  /// `section` may be a meta section: only its ports are used. `gradients`: number of elements that stand for the
  /// section's gradients if its replicas add them up at the end of a step; 0: they do not.
  EmulatedRunner(std::shared_ptr<Section> section, const SectionContext& context, std::size_t gradients = 0)
      : SectionRunner(std::move(section), context, OptimizerConfig(), 1), gradients_(gradients) {}
  PassMetrics forward(const MicroBatchPlan&, std::span<const PortTensor>, std::span<const PortTensor>) override {
    return {};
  }
  void backward(const MicroBatchPlan&, std::span<const PortTensor>, std::span<const PortTensor>) override {}
  [[nodiscard]] std::span<float> gradients() override { return gradients_; }
  [[nodiscard]] const Parameter* tied() override { return nullptr; }
  void add_over_ranks() override {}
  void spread_to_parts() override {}
  [[nodiscard]] PendingSum gradient_sum_of_squares() const override { return {}; }
  Result<OptimizerStep> step(StepId, double, std::int64_t) override { return OptimizerStep{}; }

 private:
  std::vector<float> gradients_;
};

}  // namespace maestro
