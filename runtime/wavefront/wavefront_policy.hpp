// SPDX-License-Identifier: Apache-2.0
// The default scheduler: late binding of replicas, a portfolio of orders and rules, and a search from the best.
#pragma once

#include "runtime/wavefront/policy.hpp"

namespace maestro {

/// WF-1 (shortest): the plan is the shortest of all schedules tried, including the schedule of `arrival`.
/// WF-2 (early end): planning ends before its budget when a schedule is within 0.1% of lower_bound_ms.
/// WF-3 (anytime): the budget decides only how many of the same schedules are tried: no plan is longer than a plan with
/// a smaller budget, and the smallest budget's plan is the best of the portfolio.
/// WF-4 (equal parts): if a workload consists of equal parts (EqualParts), one of them is searched.
class WavefrontPolicy final : public SchedulingPolicy {
 public:
  explicit WavefrontPolicy(const PolicyOptions& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return "wavefront"; }
  /// Puts samples that skip the upstream sections first, because the critical section can start with them at once; then
  /// the others, long and short samples spread evenly.
  [[nodiscard]] std::vector<std::size_t> packing_order(const Workload& samples, std::size_t count) const override;
  [[nodiscard]] Result<Schedule> plan(const Workload& workload) const override;

 private:
  PolicyOptions options_;
};

}  // namespace maestro
