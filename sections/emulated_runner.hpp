// SPDX-License-Identifier: Apache-2.0
// Stands in for SectionRunner on an emulated device: nothing is computed. Outputs and gradients carry whatever the
// buffers hold, the optimizer steps nothing, and the device's wait is the time it takes.
#pragma once

#include "sections/section_runner.hpp"

namespace maestro {

class EmulatedRunner final : public SectionRunner {
 public:
  /// `section` may be a meta section: only its ports are used.
  EmulatedRunner(std::shared_ptr<Section> section, const SectionContext& context)
      : SectionRunner(std::move(section), context, OptimizerConfig(), 1) {}
  PassMetrics forward(const MicroBatchPlan&, std::span<const PortTensor>, std::span<const PortTensor>) override {
    return {};
  }
  void backward(const MicroBatchPlan&, std::span<const PortTensor>, std::span<const PortTensor>) override {}
  [[nodiscard]] PendingSum gradient_sum_of_squares() const override { return {}; }
  Result<OptimizerStep> step(StepId, double) override { return OptimizerStep{}; }
};

}  // namespace maestro
