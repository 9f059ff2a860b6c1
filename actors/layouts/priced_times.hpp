// SPDX-License-Identifier: Apache-2.0
// The times of a job's passes and step ends by the prices of their calls, which dry passes list. Not thread-safe.
//
// PY-1 (equal answers): equal plans, prices and batches give equal times; there is no clock in it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/plan/job_rehearsal.hpp"
#include "runtime/estimate/call_prices.hpp"
#include "sections/pass_probe.hpp"

namespace maestro {

/// Costs of passes that layouts have in common, so that a search prices each once.
struct PricedPass {
  PassCost ms;
  PriceSources sources;
};
using PricedPasses = std::map<std::string, PricedPass>;

class PricedTimes {
 public:
  /// `hop_ms`: RehearsalTimes::hop_ms. All outlive the times.
  PricedTimes(const JobPlan& plan, const CallPricing& prices, double hop_ms, PricedPasses& known);

  [[nodiscard]] JobTimes times();
  [[nodiscard]] PassCost pass(const MicroBatchPlan& batch);
  [[nodiscard]] double action(SectionId section, StepAction action);
  /// Returns where the times of the passes came from that were asked for.
  [[nodiscard]] const PriceSources& sources() const { return sources_; }

 private:
  PassProbe& probe(SectionId section);
  const ObservedStepEnd& step_end(SectionId section);
  [[nodiscard]] double price(const std::vector<ObservedCall>& calls, PriceSources& sources) const;
  /// A copy or a sum of so many gradients.
  [[nodiscard]] double moved(std::string_view op, double elements);

  const JobPlan* plan_;
  const CallPricing* prices_;
  double hop_ms_;
  PricedPasses* known_;
  std::map<SectionId, std::unique_ptr<PassProbe>> probes_;
  std::map<SectionId, ObservedStepEnd> step_ends_;
  std::map<SectionId, std::vector<ObservedCall>> packs_;  // behind a step
  PriceSources sources_;
};

}  // namespace maestro
