// SPDX-License-Identifier: Apache-2.0
// Prices of a job's calls on this machine, and the times of plans by these prices. Sections may have shares of GPUs.
// JobPrices owns the priced passes, which plans share, and fills in missing prices by measurements. Equal
// prices give equal times. Not thread-safe.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/plan/planned_machine.hpp"
#include "apps/plan/priced_times.hpp"
#include "runtime/rehearsal/profile_file.hpp"

namespace maestro {

class SectionProfiler;

/// Sections on shares of a GPU compete for its memory and power: together they do this fraction of the work that the
/// best rates of single calls allow. Measured on an H200 (benchmarks/gpu/README.md).
inline constexpr double shared_rate = 0.73;

class JobPrices {
 public:
  /// `samples`: samples of a step. Prices and samples outlive the object.
  JobPrices(MachinePrices& prices, const PlannedMachine& machine, double hop_ms, std::span<const SampleRef> samples)
      : prices_(&prices),
        cores_(machine.cores),
        on_gpus_(machine.gpus != nullptr),
        hop_ms_(hop_ms),
        samples_(samples) {}

  /// Returns the milliseconds of work per step on each stage of a section, divided among the replicas.
  [[nodiscard]] std::vector<double> work_ms(const ResolvedJob& plan, const std::string& section, std::int64_t replicas);
  /// Returns whether all calls of a micro-batch have prices on full devices, or, with `on_shares`, on shares.
  [[nodiscard]] bool has(const ResolvedJob& plan, const MicroBatchPlan& batch, bool on_shares);
  using Progress = std::function<void(const std::string& line)>;
  /// Measures the calls of micro-batches; with `on_shares` also on shares of a GPU.
  void measure(const ResolvedJob& plan, const std::vector<MicroBatchPlan>& batches, bool on_shares,
               SectionProfiler& profiler);
  /// Measures on shares the calls that a section makes in a plan. Returns whether all have prices.
  bool measure_shares(const ResolvedJob& plan, const std::string& section, SectionProfiler* profiler,
                      const Progress& progress);
  /// Measures the work of the job's generator.
  void measure_generation(const ResolvedJob& plan, SectionProfiler& profiler);
  /// Returns whether the work of the job's generator has prices.
  [[nodiscard]] bool has_generation(const ResolvedJob& plan) const;
  [[nodiscard]] std::vector<MicroBatchPlan> batches(const ResolvedJob& plan, SectionId section) const {
    return batches_of(plan, section, samples_);
  }
  /// Returns values that were read for passes so far.
  [[nodiscard]] PortValues& values() { return values_; }

 private:
  friend class PlannedTimes;
  /// Returns dry passes of a plan's sections, on devices of the machine's kind.
  [[nodiscard]] std::shared_ptr<DrySections> dry_sections(const ResolvedJob& plan) {
    return std::make_shared<DrySections>(plan, samples_, on_gpus_, &values_);
  }

  MachinePrices* prices_;
  int cores_;
  bool on_gpus_;
  double hop_ms_;
  std::span<const SampleRef> samples_;
  PortValues values_;
  PricedPasses alone_;
  PricedPasses busy_;
  std::array<PricedPasses, measured_shares.size()> parts_;
  std::optional<LeastPrices> least_prices_;  // once the demand of a share is needed
  PricedPasses least_;
};

/// The times of a plan whose sections may have a share (measured_shares) of their devices. Not thread-safe.
class PlannedTimes {
 public:
  /// Prices and plan outlive the times.
  PlannedTimes(JobPrices& prices, const ResolvedJob& plan);
  PlannedTimes(const PlannedTimes&) = delete;  // times() refers to it
  PlannedTimes& operator=(const PlannedTimes&) = delete;

  /// This object outlives the result.
  [[nodiscard]] JobTimes times();
  [[nodiscard]] PriceSources sources() const;
  /// A section's passes of a step.
  struct Work {
    double ms = 0;
    double least_ms = 0;  ///< time at the best rates of its calls (LeastPrices)
  };
  [[nodiscard]] Work work_of(SectionId section);

 private:
  [[nodiscard]] PricedTimes& of(SectionId section);
  /// Adds the times of the job's generator.
  void add_generation(JobTimes& times) const;

  JobPrices* prices_;
  const ResolvedJob* plan_;
  std::shared_ptr<DrySections> dry_;
  PricedTimes whole_;
  std::map<double, PricedTimes> parts_;
};

/// Returns the micro-batches whose calls stand for all: the first, and another if lengths differ.
[[nodiscard]] std::vector<MicroBatchPlan> measured_of(const std::vector<MicroBatchPlan>& batches);

}  // namespace maestro
