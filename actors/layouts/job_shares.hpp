// SPDX-License-Identifier: Apache-2.0
// The part of JobPlanner that knows shares of GPUs.
#pragma once

#include <map>
#include <memory>

#include "actors/layouts/job_planner.hpp"

namespace maestro {

/// The times of a plan, whose sections may have shares of their devices, of measured_shares. Not thread-safe.
class JobPlanner::Times {
 public:
  /// Both outlive it.
  Times(JobPlanner& planner, const JobPlan& plan);
  Times(const Times&) = delete;  // times() refers to it
  Times& operator=(const Times&) = delete;

  /// This object outlives the result.
  [[nodiscard]] JobTimes times();
  [[nodiscard]] PriceSources sources() const;
  /// A section's passes of a step.
  struct Work {
    double ms = 0;
    double least_ms = 0;  ///< LeastPrices
  };
  [[nodiscard]] Work work_of(SectionId section);

 private:
  [[nodiscard]] PricedTimes& of(SectionId section);

  JobPlanner* planner_;
  const JobPlan* plan_;
  int cores_;
  bool on_gpus_;
  std::shared_ptr<DrySections> dry_;
  PricedTimes whole_;
  std::map<double, PricedTimes> parts_;
};

/// Returns the ways to divide a device among so many sections, each a share of measured_shares; one for one section.
[[nodiscard]] std::vector<std::vector<double>> divided_shares(std::size_t sections);

}  // namespace maestro
