// SPDX-License-Identifier: Apache-2.0
// Rehearses layouts of ClusterPlanner, and changes of them that bounds do not show: micro-batches in flight, sizes of
// micro-batches, chunks, keys of the run. Owns the latest rehearsals, as equal settings are often rehearsed again.
// Equal calls give equal results; not thread-safe.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/cluster_job.hpp"
#include "apps/plan/cluster_lanes.hpp"
#include "apps/plan/cluster_rehearsal.hpp"

namespace maestro {

/// The share of a step that more devices or other keys have to gain.
inline constexpr double least_plan_gain = 0.005;

/// Layouts to compare, with the keys of the run and their latest rehearsal.
struct LayoutTrial {
  ClusterLayouts layouts;
  PlannedRunKeys keys = {};
  PlayedLayouts played = {};
  double price_per_hour = 0;
  std::int64_t devices = 0;
  std::string text = {};  ///< RivalDivision::text
};

class TrialBench {
 public:
  /// Both outlive the bench.
  TrialBench(const ClusterJob& job, LayoutCatalogue& catalogue) : job_(&job), catalogue_(&catalogue) {}

  /// Returns a trial that is not rehearsed yet.
  [[nodiscard]] LayoutTrial trial(std::string text, ClusterLayouts layouts) const;
  /// Rehearses layouts, or one of their equal parts.
  [[nodiscard]] PlayedLayouts play(const ClusterLayouts& layouts, const PlannedRunKeys& keys = {});
  /// Returns the step if passes take other times.
  [[nodiscard]] double changed_ms(const ClusterLayouts& layouts, const PlannedRunKeys& keys,
                                  const RehearsalChange& change);
  /// Returns the micro-batches of a step, as far as it is rehearsed.
  [[nodiscard]] std::size_t passes(const ClusterLayouts& layouts, const PlannedRunKeys& keys) {
    return rehearsal_of(layouts, keys, parts_of(layouts)).passes();
  }
  /// Rehearses a trial, also with more micro-batches in flight, which it keeps if they gain.
  void play_in_flight(LayoutTrial& trial);
  /// Sets the sizes of micro-batches with which the step is shortest, if steps are small enough to try them.
  void vary_batches(LayoutTrial& trial, const ClusterLanes& lanes);
  /// Sets the chunks of pipelines with which the step is shortest, if steps are small enough to try them.
  void vary_chunks(LayoutTrial& trial, const ClusterLanes& lanes);
  /// Sets the run's keys with which the step is shortest, if they gain.
  void tune(LayoutTrial& trial);
  /// Replaces a part's rehearsal by a rehearsal of all replicas.
  void play_whole(LayoutTrial& trial);
  /// Returns how many rehearsals have run.
  [[nodiscard]] std::size_t rehearsed() const { return rehearsed_; }

 private:
  struct Kept {
    std::vector<std::string> settings;
    std::unique_ptr<ClusterRehearsal> rehearsal;
  };
  /// Returns the number of equal parts; one of them is rehearsed in place of all.
  [[nodiscard]] std::int64_t parts_of(const ClusterLayouts& layouts) const;
  [[nodiscard]] const ClusterRehearsal& rehearsal_of(const ClusterLayouts& layouts, const PlannedRunKeys& keys,
                                                     std::int64_t parts);
  /// Returns whether the step takes little more than its bound, so that no change can gain.
  [[nodiscard]] bool at_bound(const LayoutTrial& trial) const;
  /// Rehearses other layouts and keys. The trial takes them if the step is at most `most_ms`; returns whether it does.
  bool take(LayoutTrial& trial, ClusterLayouts layouts, const PlannedRunKeys& keys, double most_ms);
  const ClusterJob* job_;
  LayoutCatalogue* catalogue_;
  std::list<Kept> kept_;  // the latest first
  std::size_t rehearsed_ = 0;
};

}  // namespace maestro
