// SPDX-License-Identifier: Apache-2.0
// The times of a job's passes and step ends by the prices of their calls, which dry passes list. Not thread-safe.
//
// PY-1 (equal answers): equal plans, prices and batches give equal times; no clock is read.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/job/job_probes.hpp"
#include "actors/job/job_rehearsal.hpp"
#include "runtime/rehearsal/call_prices.hpp"
#include "runtime/schedule/lane_key.hpp"
#include "sections/pass_probe.hpp"

namespace maestro {

/// The cost of a pass; layouts share these costs, so that a search prices each pass once.
struct PricedPass {
  PassCost ms;
  PriceSources sources;
};
using PricedPasses = std::map<std::string, PricedPass>;

/// Returns the bytes of rows that one section writes to another.
[[nodiscard]] double write_bytes(const ResolvedJob& plan, SectionId from, SectionId to, std::int64_t rows);

/// Dry passes of a job's sections, for the prices of several devices. Not thread-safe.
class DrySections {
 public:
  /// `samples`: samples of a step, for its end; `own_memory`: as in ProbeSite; `values`: values read for other layouts.
  /// All outlive the sections.
  DrySections(const ResolvedJob& plan, std::span<const SampleRef> samples, bool own_memory,
              PortValues* values = nullptr)
      : plan_(&plan), samples_(samples), own_memory_(own_memory), values_(values) {}
  /// Returns the probe of a replica's first rank, which replicas with equal layouts share.
  [[nodiscard]] PassProbe& probe(const LaneKey& lane);
  /// Observes a pass, or returns an earlier observation with its key. Passes with equal keys make equal calls.
  [[nodiscard]] ObservedPasses pass(const std::string& key, const MicroBatchPlan& batch);
  [[nodiscard]] const ObservedStepEnd& step_end(SectionId section);
  /// Returns the calls that pack the weights after a step.
  [[nodiscard]] const std::vector<ObservedCall>& packs(SectionId section);

 private:
  struct StepEnd {
    ObservedStepEnd calls;
    std::vector<ObservedCall> packs;
  };
  const StepEnd& observed_end(SectionId section);

  const ResolvedJob* plan_;
  std::span<const SampleRef> samples_;
  bool own_memory_;
  PortValues* values_;
  std::map<std::pair<SectionId, std::int64_t>, std::unique_ptr<PassProbe>> probes_;  // by section and context
  std::map<std::string, ObservedPasses> passes_;
  std::map<SectionId, StepEnd> ends_;
};

class PricedTimes {
 public:
  /// `samples`: samples of a step, for its end; `hop_ms`: RehearsalTimes::hop_ms. All outlive the times.
  PricedTimes(const ResolvedJob& plan, std::span<const SampleRef> samples, const CallPricing& prices, double hop_ms,
              PricedPasses& known)
      : PricedTimes(plan, std::make_shared<DrySections>(plan, samples, prices.own_memory()), prices, hop_ms, known) {}
  /// `sections`: shared by the times of several devices.
  PricedTimes(const ResolvedJob& plan, std::shared_ptr<DrySections> sections, const CallPricing& prices, double hop_ms,
              PricedPasses& known);

  [[nodiscard]] JobTimes times();
  [[nodiscard]] PassCost pass(const MicroBatchPlan& batch);
  [[nodiscard]] double action(SectionId section, StepAction action);
  /// Returns the sources of the milliseconds that pass() and action() have returned.
  [[nodiscard]] const PriceSources& sources() const { return sources_; }

  /// Returns the dry probe of the first rank of a section's replica 0.
  [[nodiscard]] PassProbe& probe(SectionId section) { return sections_->probe({section, {}}); }

 private:
  struct LastPass {  // the next pass is mostly equal
    Pass pass = Pass::train;
    std::vector<SampleRef> samples;
    const PricedPass* priced = nullptr;
  };
  [[nodiscard]] const PricedPass& priced_pass(const GraphNode& node, const MicroBatchPlan& batch);
  [[nodiscard]] double price(const std::vector<ObservedCall>& calls, PriceSources& sources) const;
  /// Returns the milliseconds of a copy or a sum of so many gradients.
  [[nodiscard]] double moved(double elements, PriceSources& sources);
  [[nodiscard]] double priced_action(SectionId section, StepAction action, PriceSources& sources);

  const ResolvedJob* plan_;
  std::shared_ptr<DrySections> sections_;
  const CallPricing* prices_;
  double hop_ms_;
  PricedPasses* known_;
  std::map<std::pair<SectionId, std::int64_t>, LastPass> last_;  // by section and context
  std::map<std::pair<SectionId, StepAction>, std::pair<double, PriceSources>> actions_;
  PriceSources sources_;
};

/// Returns how long the busiest device (or core, if devices share cores) works in a step, averaged over the steps.
/// Sections that run ahead may take less in some steps, but not in the long run.
[[nodiscard]] double busiest_ms(const ResolvedJob& plan, const std::vector<const StepPlan*>& steps,
                                const JobTimes& times);

}  // namespace maestro
