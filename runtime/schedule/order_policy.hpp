// In what order the samples of a global batch run. A policy may permute samples inside the batch, never across batches,
// so the gradient of a step is the same sum under every policy.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Stateless or internally consistent under calls from one thread (the coordinator's).
class OrderPolicy {
 public:
  virtual ~OrderPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// A permutation of `samples`: OP-1: each sample exactly once.
  [[nodiscard]] virtual std::vector<SampleRef> order(std::vector<SampleRef> samples) const = 0;
};

/// Samples run in the order the source read them.
class ArrivalOrder final : public OrderPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "arrival"; }
  [[nodiscard]] std::vector<SampleRef> order(std::vector<SampleRef> samples) const override { return samples; }
};

/// Throws JobError for an unknown name, with the known ones.
std::unique_ptr<OrderPolicy> make_order_policy(std::string_view name);

}  // namespace maestro
