// SPDX-License-Identifier: Apache-2.0
// Chooses the layouts of a job's sections on a described cluster, and the pool of each: each section has its own
// devices, or sections share them in groups. With `kept` one section keeps its layout, and the others get the fewest
// devices with which it waits for at most a share of the time; else all get devices with which a step takes the least
// time, or costs least.
//
// LayoutCatalogue prices all layouts. Divisions gives out devices by bounds, for every division of the sections into
// groups. TrialBench rehearses the best divisions. If sections share devices, up to four sets of layouts (Sharing) are
// rehearsed, each with devices given out anew: bounds do not include the waits between layouts on shared devices. If
// pools differ, a section may get replicas on several of them (SpreadLayouts). A rehearsal that takes longer
// than its bound is repeated with more micro-batches in flight; if the critical section still waits, run keys (speeds,
// slots) and more devices are tried, the keys also for the closest rivals. Layouts of equal parts are compared by one
// part (ClusterPart), and on many devices chosen so that they have such parts; the choice is rehearsed at full size.
//
// CY-1 (within the cluster): a choice has at most the cluster's devices, the ranks of a stage on one host, and needs at
//       most the stated share of a device's memory.
// CY-2 (no clock): equal jobs, clusters and options give equal choices.
#pragma once

#include <string>
#include <vector>

#include "apps/plan/divisions.hpp"
#include "apps/plan/rivals.hpp"
#include "apps/plan/spread_search.hpp"
#include "apps/plan/trial_bench.hpp"

namespace maestro {

struct ClusterChoice {
  ClusterLayouts sections;
  PlayedLayouts played;       ///< rehearsal at full size
  double bound_ms = 0;        ///< bound of the choice's slowest section
  double least_bound_ms = 0;  ///< least bound of all choices within the price; at most the rehearsed step
  double apart_bound_ms = 0;  ///< least bound of choices without shared devices; 0: none fits
  double stall = 0;           ///< share of the time for which the critical section waits
  std::string critical;       ///< the kept section, else the section with the largest bound
  std::int64_t devices = 0;
  std::vector<std::int64_t> hosts;  ///< hosts of each pool
  double price_per_hour = 0;        ///< price of these hosts
  std::vector<Allocation> front;    ///< time against cost, by bounds; empty: a pool lacks a price, or a section is kept
  std::size_t priced = 0;           ///< layouts of sections
  std::size_t refused = 0;
  std::size_t rehearsed = 0;
  std::string first_refusal;
  std::vector<RivalDivision> rivals;   ///< other divisions, the nearest first
  std::vector<Certainty> certainties;  ///< compared with the rivals; the critical section first, as far as examined
  std::vector<std::string> settings;   ///< chosen keys as for --set, with devices and processes of a real cluster
};

/// The fastest layouts on some devices of a pool, rehearsed: a cell of the curve that a cluster's scheduler reads.
struct ClusterCell {
  std::size_t pool = 0;
  std::int64_t devices = 0;  ///< available devices; the layouts may have fewer
  ClusterLayouts sections;
  double step_ms = 0;
  double busy = 0;   ///< share of the devices' time in passes and step ends
  double bytes = 0;  ///< largest memory of a device
  double price_per_hour = 0;
  std::vector<std::string> settings;
};

/// No layouts fit the devices and their memory.
class ClusterTooSmall : public JobError {
 public:
  using JobError::JobError;
};

/// Not thread-safe.
class ClusterPlanner {
 public:
  /// Called by one thread at a time, though not always by the same; its results are independent of each other.
  using Resolve = LayoutCatalogue::Resolve;
  /// `resolve` gets settings that put every section on emulated devices. Throws the errors of ClusterJob.
  ClusterPlanner(Resolve resolve, DescribedCluster cluster, ClusterPlannerOptions options);
  ClusterPlanner(const ClusterPlanner&) = delete;  // parts refer to each other
  ClusterPlanner& operator=(const ClusterPlanner&) = delete;

  /// Throws ClusterTooSmall, with the section that needs the most memory, also if the price is too low.
  [[nodiscard]] ClusterChoice choose();
  /// Returns cells for 1, 2, 4, ... and all devices of each kind's largest pool. Omits counts that are too small, or no
  /// faster than a smaller count.
  [[nodiscard]] std::vector<ClusterCell> cells();
  [[nodiscard]] const ResolvedJob& base() const { return job_.base; }

 private:
  /// Returns the best of all divisions; sets the bounds, the front and the critical section of the choice.
  [[nodiscard]] LayoutTrial best_of_all(const Divisions& divisions, Rivals& rivals, ClusterChoice& chosen);
  /// Rehearses candidates and returns the best of them; the others are rivals.
  [[nodiscard]] LayoutTrial best_of(const Divisions& divisions, const std::vector<DivisionCandidate>& candidates,
                                    const std::vector<std::int64_t>& devices, Rivals& rivals);
  /// Rehearses layouts with a section on several pools. Faster ones replace `best`; the others are rivals.
  void try_spread(LayoutTrial& best, const std::vector<SpreadLayouts::Found>& found, Rivals& rivals);
  /// Sets the run's keys of the best and of its closest rivals; the fastest replaces `best`.
  void tune_with_rivals(LayoutTrial& best, Rivals& rivals);
  /// Grows the other sections until the critical one waits no longer than it may, or nothing can grow; without a kept
  /// section also until more devices gain nothing. Returns the share of the time for which it waits.
  double grow_until_hidden(LayoutTrial& best, const ClusterLanes& lanes, const std::string& critical);
  [[nodiscard]] ClusterCell cell_of(const LayoutTrial& trial) const;
  [[noreturn]] void fail_as_too_small() const;

  ClusterJob job_;
  LayoutCatalogue catalogue_;
  TrialBench bench_;
};

}  // namespace maestro
