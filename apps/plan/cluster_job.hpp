// SPDX-License-Identifier: Apache-2.0
// A job to plan for a described cluster: the inputs of ClusterPlanner, and the settings of layouts. Immutable;
// thread-safe, except for `resolve`.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/plan/layout_catalogue.hpp"

namespace maestro {

struct ClusterPlannerOptions {
  std::set<std::string> varied;          ///< keys of ChosenKeys
  std::string kept;                      ///< section that keeps its layout ("extra"); empty: none
  double stall = 0.01;                   ///< share of the time for which the kept section may wait for others
  double headroom = 0.92;                ///< share of a device's memory that layouts may need
  double hop_ms = 0.03;                  ///< RehearsalTimes::hop_ms
  bool slots = true;                     ///< transport.slots is chosen
  bool cheapest = false;                 ///< minimizes a step's cost instead of its time; every pool needs a price
  double most_per_hour = infinite;       ///< price of all hosts
  std::set<std::string> planned_speeds;  ///< sections whose `speed` is from an earlier plan, and may change
  std::vector<std::string> settings;     ///< further settings of every layout: "student.recompute=\"layers\""
};

/// Keys of the run that are chosen along with layouts.
struct PlannedRunKeys {
  bool speeds = false;     ///< sections have speeds, relative to the fastest
  std::int64_t slots = 0;  ///< transport.slots; 0: the job's value
  friend bool operator==(const PlannedRunKeys&, const PlannedRunKeys&) = default;
};

struct ClusterJob {
  /// Throws the errors of ChosenKeys. Also throws JobError if the job lacks the kept section or its replicas, or if a
  /// cost is wanted and a pool lacks a price.
  ClusterJob(LayoutCatalogue::Resolve resolve_job, DescribedCluster described, ClusterPlannerOptions given);

  /// Returns whether the job gives the section's speed.
  [[nodiscard]] bool gives_speed(const std::string& section) const;
  /// Returns whether equal parts of a plan have equal work: samples are equal, all replicas are chosen, and no speed is
  /// given.
  [[nodiscard]] bool has_parts() const;
  [[nodiscard]] std::vector<std::int64_t> devices_of_pools() const;
  [[nodiscard]] const std::vector<SampleRef>& samples() const { return units.front().samples; }
  /// Returns the settings of layouts on emulated devices.
  [[nodiscard]] std::vector<std::string> rehearsed_settings(const ClusterLayouts& layouts,
                                                            const PlannedRunKeys& run) const;
  /// Returns the chosen keys, with devices and processes of a real cluster.
  [[nodiscard]] std::vector<std::string> placed_settings(const ClusterLayouts& layouts,
                                                         const PlannedRunKeys& run) const;

  LayoutCatalogue::Resolve resolve;
  DescribedCluster cluster;
  ClusterPlannerOptions options;
  ResolvedJob base;  ///< the job without a chosen key
  ChosenKeys keys;
  std::vector<TracedUnit> units;  ///< first steps of the job, for every layout
  bool equal_samples;             ///< all samples of these steps have one size

 private:
  void check_options() const;
  /// Returns max_in_flight of sections, slots, and speeds that the job does not give. A section on several pools has a
  /// speed for each replica in any case.
  [[nodiscard]] std::vector<std::string> run_settings(const ClusterLayouts& layouts, const PlannedRunKeys& run) const;
};

}  // namespace maestro
