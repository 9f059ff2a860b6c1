// SPDX-License-Identifier: Apache-2.0
// The times of a traced run, for rehearsals of it and of what it might have been. A pass that the trace has takes as
// long as it took; any other is estimated from the passes of its section. Pure; not thread-safe.
//
// TT-1 (as measured): a pass of the traced run takes the time that the trace has of it; on a lane of another speed
//       (`speed` of the section as a list) that time by the ratio of the two.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/rehearsal/pass_fit.hpp"
#include "runtime/rehearsal/rehearsed_ports.hpp"
#include "runtime/rehearsal/traced_run.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/step_end.hpp"

namespace maestro {

/// A job as it was traced, or as it might have been.
struct TimedJob {
  const SectionGraph* graph = nullptr;           ///< outlives the times
  SampleCost cost;                               ///< FLOPs (or another unit) of a sample's passes on a rank
  bool joined_norms = false;                     ///< the norms of all trained sections are answered together
  std::vector<std::vector<double>> speeds = {};  ///< [section]: WorkloadSection::speeds; empty: all lanes are alike
  /// Returns the speed of the micro-batch's lane.
  [[nodiscard]] double speed_of(const MicroBatchPlan& batch) const {
    const bool alike = speeds.empty() || speeds[batch.section.value()].empty();
    return alike ? 1 : speeds[batch.section.value()][batch.replica.value()];
  }
};

/// Numbers of passes.
struct PassSources {
  std::uint64_t traced = 0;     ///< with their own times
  std::uint64_t estimated = 0;  ///< from other passes of their section
};

class TracedTimes {
 public:
  /// `plans`: of the traced run's units, made anew. `run` outlives it.
  TracedTimes(const TracedRun& run, TimedJob traced, const std::vector<StepPlan>& plans);

  /// Returns the times of a micro-batch of `job`, the traced one or another. Sections are found by their names; a stage
  /// that the traced run did not have takes the rate of its section.
  [[nodiscard]] PassCost pass(const TimedJob& job, const MicroBatchPlan& batch) const;
  /// Returns the median of the action's times in the traced run; of an exchange, from its last replica on.
  [[nodiscard]] double action(const TimedJob& job, SectionId section, StepAction action) const;
  /// Returns the milliseconds of a write of `rows` rows between the two sections; 0 where the trace has no write.
  [[nodiscard]] double write(const std::string& from, const std::string& to, std::int64_t rows) const;
  /// Returns where the answers of pass() came from so far.
  [[nodiscard]] const PassSources& sources() const { return sources_; }

 private:
  struct SectionFit {
    PassFit forward, backward;
  };
  [[nodiscard]] const TracedPass* find(const GraphNode& node, const MicroBatchPlan& batch) const;
  /// Returns the times of both directions; `units`: of the pass. A pass in both at once is split by them.
  [[nodiscard]] PassCost split(SectionId section, Pass kind, const PassCost& units, const TracedPass& traced) const;
  void add_actions();
  void add_exchange(const std::string& section, const std::vector<const TracedLane*>& lanes, double norms_end_ms);
  [[nodiscard]] const SectionFit* fit_of(const GraphNode& node) const;

  const TracedRun* run_;
  TimedJob traced_;
  std::map<std::string, SectionFit> fits_;                                     // by section or stage
  std::map<TracedPassKey, double> speeds_;                                     // of lanes other than the fastest
  std::map<std::pair<std::string, StepAction>, std::vector<double>> actions_;  // likewise: milliseconds
  std::map<std::pair<std::string, std::string>, PassFit> writes_;              // by the names of both ends
  mutable PassSources sources_;
};

}  // namespace maestro
