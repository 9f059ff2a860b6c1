// SPDX-License-Identifier: Apache-2.0
// Times from a traced run, to rehearse this run and variants. A pass in the trace takes its traced time; any other pass
// is estimated from other passes in its section. Pure; not thread-safe.
//
// TT-1 (as measured): a pass of the traced run takes its traced time; on a lane with another speed (`speed` of the
//       section is a list), that time is scaled by the ratio of speeds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/rehearsal/pass_fit.hpp"
#include "runtime/rehearsal/rehearsed_ports.hpp"
#include "runtime/rehearsal/rehearsed_rollouts.hpp"
#include "runtime/rehearsal/traced_run.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/step_end.hpp"

namespace maestro {

/// The traced job, or a variant.
struct TimedJob {
  const SectionGraph* graph = nullptr;           ///< graph that outlives the times
  SampleCost cost;                               ///< FLOPs (or another unit) of a sample's passes on a rank
  bool joined_norms = false;                     ///< the norms of all trained sections are answered together
  std::vector<std::vector<double>> speeds = {};  ///< WorkloadSection::speeds by section; empty: equal speeds
  /// Returns the lane speed for a micro-batch.
  [[nodiscard]] double speed_of(const MicroBatchPlan& batch) const {
    const bool alike = speeds.empty() || speeds[batch.section.value()].empty();
    return alike ? 1 : speeds[batch.section.value()][batch.replica.value()];
  }
};

/// Numbers of passes by the source of their times.
struct PassSources {
  std::uint64_t traced = 0;     ///< passes with traced times
  std::uint64_t estimated = 0;  ///< passes estimated from others in their section
};

/// Returns a traced generator's times, which are means: for a block, whatever its length, for a decode step by its
/// number of sequences, and for a take. Nothing if the trace lacks some.
[[nodiscard]] std::optional<GenerationTimes> generation_times(const TracedGeneration& traced);

class TracedTimes {
 public:
  /// Reads the times of `run`, which outlives this object; `plans` are plans of its units, made anew.
  TracedTimes(const TracedRun& run, TimedJob traced, const std::vector<StepPlan>& plans);

  /// Returns the times of a micro-batch in `job`, the traced job or a variant. Sections are found by name; a stage that
  /// the traced run did not have takes the rate of its section.
  [[nodiscard]] PassCost pass(const TimedJob& job, const MicroBatchPlan& batch) const;
  /// Returns the action's median time in the traced run; an exchange begins when its last replica arrives.
  [[nodiscard]] double action(const TimedJob& job, SectionId section, StepAction action) const;
  /// Returns the milliseconds of a write of `rows` rows between the two sections; 0 if the trace lacks such writes.
  [[nodiscard]] double write(const std::string& from, const std::string& to, std::int64_t rows) const;
  /// Returns the sources of pass() results so far.
  [[nodiscard]] const PassSources& sources() const { return sources_; }

 private:
  struct SectionFit {
    PassFit forward, backward;
  };
  [[nodiscard]] const TracedPass* find(const GraphNode& node, const MicroBatchPlan& batch) const;
  /// Returns the times of both directions; a pass in both directions at once is split by its `units`.
  [[nodiscard]] PassCost split(SectionId section, Pass kind, const PassCost& units, const TracedPass& traced) const;
  void add_actions();
  void add_exchange(const std::string& section, const std::vector<const TracedLane*>& lanes, double norms_end_ms);
  [[nodiscard]] const SectionFit* fit_of(const GraphNode& node) const;

  const TracedRun* run_;
  TimedJob traced_;
  std::map<std::string, SectionFit> fits_;                                     // fits by section or stage
  std::map<TracedPassKey, double> speeds_;                                     // speeds of lanes other than the fastest
  std::map<std::pair<std::string, StepAction>, std::vector<double>> actions_;  // milliseconds
  std::map<std::pair<std::string, std::string>, PassFit> writes_;              // fits by the names of both ends
  mutable PassSources sources_;
};

}  // namespace maestro
