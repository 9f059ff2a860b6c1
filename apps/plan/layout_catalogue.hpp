// SPDX-License-Identifier: Apache-2.0
// Prices of all layouts that a job's sections may have on a described cluster. LayoutCatalogue lists the layouts, runs
// dry passes of each, and holds the times and bytes of one replica on every pool. Not thread-safe; price_all() uses all
// cores.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "actors/job/job_probes.hpp"
#include "apps/plan/cluster_layout.hpp"
#include "apps/plan/planned_keys.hpp"
#include "apps/plan/priced_times.hpp"

namespace maestro {

/// Value of the key `devices` for a section that shares no devices, in rehearsals of a plan.
inline const std::string own_devices = R"(["emulated"])";

/// A layout of a section on a pool, priced.
struct ClusterLane {
  SectionLayout layout;  ///< layout with one replica
  std::size_t pool = 0;
  double work_ms = 0;        ///< W: passes of a step on the slowest stage
  double units = 0;          ///< cost of that work in units of the job's cost model
  double fill_ms = 0;        ///< F: time until a micro-batch has reached the slowest stage
  double longest_ms = 0;     ///< L: longest micro-batch, over all stages
  double shortest_ms = 0;    ///< S: shortest micro-batch on the slowest stage
  std::int64_t batches = 0;  ///< B: micro-batches of a step
  double end_ms = 0;         ///< end of a step, without exchanges and the optimizer
  double optimizer_ms = 0;
  double gradient_bytes = 0;
  double state_bytes = 0;        ///< optimizer state of a rank
  double resting_bytes = 0;      ///< memory of a rank without optimizer state and micro-batches
  double pass_bytes = 0;         ///< memory of a micro-batch
  double other_bytes = 0;        ///< memory without optimizer state, with the micro-batches of each stage
  std::size_t slowest = 0;       ///< slowest stage
  std::vector<double> batch_ms;  ///< passes of the slowest stage; empty once shared_work is known
  double shared_work = 0;        ///< U over all pools (ClusterLanes); 0: the pools differ in their slowest stage
  [[nodiscard]] std::int64_t devices() const { return layout.devices(); }
};

class LayoutCatalogue {
 public:
  /// `base`: the job without a chosen key; `headroom`: share of a device's memory that layouts may need. All outlive
  /// the catalogue.
  LayoutCatalogue(const DescribedCluster& cluster, const ResolvedJob& base, const ChosenKeys& keys, double headroom,
                  double hop_ms);

  using Resolve = std::function<ResolvedJob(const std::vector<std::string>& settings)>;
  /// Prices the layouts of all sections that lack prices. `samples`: samples of a step. Calls `resolve` from several
  /// threads, one at a time. Throws JobError if a section has no layout.
  void price_all(const Resolve& resolve, std::span<const SampleRef> samples);

  /// Prices a layout with chunks, which price_all() leaves out unless the job gives chunks. Returns whether the section
  /// can have it.
  bool price_more(const std::string& section, const SectionLayout& layout, const Resolve& resolve,
                  std::span<const SampleRef> samples);

  /// Returns the priced layouts of a section; the pools of a layout follow each other.
  [[nodiscard]] const std::vector<ClusterLane>& of(const std::string& section) const { return lanes_.at(section); }
  /// Returns the number of priced layouts.
  [[nodiscard]] std::size_t count() const;
  /// Returns the number of layouts that the job cannot have.
  [[nodiscard]] std::size_t refused() const { return refused_; }
  [[nodiscard]] const std::string& first_refusal() const { return first_refusal_; }

  [[nodiscard]] const DescribedCluster& cluster() const { return *cluster_; }
  /// Returns the replicas that the job gives to a section; nothing if they are chosen.
  [[nodiscard]] std::optional<std::int64_t> given_replicas(const std::string& section) const;
  [[nodiscard]] std::vector<bool> zero_choices(const std::string& section) const;
  /// Returns the memory of a pool's devices that layouts may need.
  [[nodiscard]] double most_bytes(std::size_t pool) const { return headroom_ * cluster_->pools[pool].memory_bytes; }
  [[nodiscard]] const DescribedPrices& prices(std::size_t pool) const { return prices_[pool]; }
  [[nodiscard]] PricedPasses& passes(std::size_t pool) { return passes_[pool]; }

 private:
  /// Layouts of a section that differ only in their micro-batches, the smallest first.
  struct LayoutRun {
    std::string section;
    std::vector<SectionLayout> layouts;
  };
  struct PricedRun {
    std::string section;
    std::vector<ClusterLane> lanes;
    std::map<std::size_t, PricedPasses> passes;  // by pool
    std::size_t refused = 0;
    std::string first_refusal;
  };
  /// Returns the layouts that a section may have on the cluster; `replicas`, `zero` and chosen `chunks` come later.
  [[nodiscard]] std::vector<SectionLayout> possible(const std::string& section) const;
  /// Thread-safe; locks `resolving` for each call of `resolve`.
  [[nodiscard]] PricedRun priced(const LayoutRun& run, const Resolve& resolve, std::mutex& resolving,
                                 std::span<const SampleRef> samples);
  /// Prices a layout on every pool whose hosts it fills without a gap. Returns whether any pool has enough memory.
  /// `plan`: the job with the layout. Thread-safe if each thread has its own `made`.
  bool price(const SectionLayout& layout, const ResolvedJob& plan, std::span<const SampleRef> samples, PricedRun& made);
  void add(PricedRun made);

  const DescribedCluster* cluster_;
  const ResolvedJob* base_;
  const ChosenKeys* keys_;
  double headroom_;
  double hop_ms_;
  std::vector<DescribedPrices> prices_;  // by pool
  std::vector<PricedPasses> passes_;     // by pool
  std::map<std::string, std::vector<ClusterLane>> lanes_;
  PortValues values_;
  std::size_t refused_ = 0;
  std::string first_refusal_;
};

}  // namespace maestro
