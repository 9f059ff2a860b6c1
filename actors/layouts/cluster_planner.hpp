// SPDX-License-Identifier: Apache-2.0
// Chooses the layouts of a job's sections on a described cluster: each section on devices of its own. With an objective
// "extra" one section keeps its layout, and the others get the fewest devices with which it waits no longer than a
// share of the time; else all get a share of the devices with which a step takes the least time.
//
// A section's step on n devices is bounded by T(n) = min over its layouts of max(W / r + F, ceil(B / r) S + F, L) +
// R(r), with r lanes of the layout on n devices: B micro-batches, S the shortest of them, W the work of a step on its
// slowest stage, F the time until a micro-batch has come to that stage, L the longest micro-batch, R the end of a step.
// Devices are given out by bisection over T, and the choice is rehearsed at full size.
//
// CY-1 (within the cluster): a choice has at most the cluster's devices, the ranks of a stage on one host, and needs at
//       most the stated share of a device's memory.
// CY-2 (no clock): equal jobs, clusters and options give equal choices.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/layouts/planned_keys.hpp"
#include "actors/layouts/priced_times.hpp"
#include "runtime/estimate/described_cluster.hpp"
#include "runtime/estimate/rehearsed_shares.hpp"

namespace maestro {

struct ClusterPlannerOptions {
  std::set<std::string> varied;  ///< ChosenKeys
  std::string kept;              ///< section that keeps its layout ("extra"); empty: none
  double stall = 0.01;           ///< share of the time in which the kept section may wait for others
  double headroom = 0.92;        ///< share of a device's memory that layouts may need
  double hop_ms = 0.03;          ///< RehearsalTimes::hop_ms
};

/// A layout of a section on the cluster.
struct ClusterLayout {
  SectionLayout layout;
  double bound_ms = 0;  ///< T(n)
  double bytes = 0;     ///< of a device, estimated by a dry pass
};

struct ClusterChoice {
  std::map<std::string, ClusterLayout> sections;
  double step_ms = 0;         ///< rehearsed
  double bound_ms = 0;        ///< of the choice: its slowest section
  double least_bound_ms = 0;  ///< of all choices with devices of their own
  double stall = 0;           ///< of the section that is critical
  std::string critical;       ///< the kept section, else the one with the largest bound
  std::map<std::string, SectionShares> shares;
  std::int64_t devices = 0;
  std::size_t priced = 0;  ///< layouts of sections
  std::size_t refused = 0;
  std::size_t rehearsed = 0;
  std::string first_refusal;
  std::vector<std::string> settings;  ///< as for --set: the chosen keys, with devices and processes of a real cluster
};

/// Not thread-safe.
class ClusterPlanner {
 public:
  using Resolve = std::function<JobPlan(const std::vector<std::string>& settings)>;
  /// `resolve` gets settings that put every section on emulated devices. Throws the errors of ChosenKeys, and JobError
  /// for a kept section that the job has not, or to which it gives no replicas.
  ClusterPlanner(Resolve resolve, DescribedCluster cluster, ClusterPlannerOptions options);

  /// Throws JobError where the cluster is too small.
  [[nodiscard]] ClusterChoice choose();
  [[nodiscard]] const JobPlan& base() const { return base_; }

 private:
  /// A layout with one replica, priced.
  struct Lane {
    SectionLayout layout;
    double work_ms = 0;
    double fill_ms = 0;
    double longest_ms = 0;
    double shortest_ms = 0;
    std::int64_t batches = 0;
    double end_ms = 0;  // but for the optimizer
    double optimizer_ms = 0;
    double gradient_bytes = 0;
    double state_bytes = 0;  // optimizer state of a rank
    double other_bytes = 0;
    [[nodiscard]] std::int64_t devices() const { return layout.devices(); }
  };
  using Choice = std::map<std::string, ClusterLayout>;
  struct Played {
    double step_ms = 0;
    std::map<std::string, SectionShares> shares;
  };
  [[nodiscard]] std::vector<std::string> emulated(const std::string& section, const SectionLayout& layout) const;
  void price(const std::string& section);
  [[nodiscard]] Lane priced(const std::string& section, const SectionLayout& layout, const JobPlan& plan);
  /// Returns the layout on so many replicas with its bound; nothing where the memory is too small.
  [[nodiscard]] std::optional<ClusterLayout> on(const Lane& lane, std::int64_t replicas, bool zero) const;
  [[nodiscard]] std::vector<bool> zero_choices(const std::string& section) const;
  /// Returns the fewest devices on which a section's step takes at most so long.
  [[nodiscard]] std::optional<ClusterLayout> fewest(const std::string& section, double most_ms) const;
  [[nodiscard]] std::optional<Choice> within(double most_ms) const;
  [[nodiscard]] Choice by_bisection(double& least_ms) const;
  [[nodiscard]] Played play(const Choice& choice, const std::string& alone);
  /// Returns the most replicas that a layout can have on the cluster.
  [[nodiscard]] std::int64_t most_replicas(const Lane& lane) const;
  /// Returns the section that the kept one waits for most; empty: none can have more replicas.
  [[nodiscard]] std::string most_wanted(const Choice& choice, const Played& played) const;
  /// Returns the choice with more replicas of a section; nothing where it or the cluster has no room.
  [[nodiscard]] std::optional<Choice> grown(const Choice& choice, const std::string& section) const;
  /// Grows the other sections until the kept one waits no longer than it may, or nothing can grow.
  void grow_until_hidden(Choice& choice, ClusterChoice& chosen);
  [[nodiscard]] std::vector<std::string> placed(const Choice& choice) const;

  Resolve resolve_;
  DescribedCluster cluster_;
  DescribedPrices prices_;
  ClusterPlannerOptions options_;
  JobPlan base_;
  ChosenKeys keys_;
  std::vector<TracedUnit> units_;  // of every layout: the first steps
  PricedPasses passes_;
  std::map<std::string, std::vector<Lane>> lanes_;
  std::size_t refused_ = 0;
  std::string first_refusal_;
  std::size_t rehearsed_ = 0;
};

}  // namespace maestro
