// SPDX-License-Identifier: Apache-2.0
// The layouts of a job's sections on the pools of a described cluster, by dry passes and prices: bound and memory of a
// section on so many devices. Not thread-safe, but for price().
//
// A section's step on n devices of a pool is bounded by T(n) = min over its layouts of
// max(W / r + F, ceil(B / r) S + F, L) + R(r), with r lanes of the layout on n devices: B micro-batches, S the shortest
// of them, W the work of a step on its slowest stage, F the time until a micro-batch has come to that stage, L the
// longest micro-batch, R the end of a step.
//
// Replicas of a section may be on several pools, all with the same tensor, context, pipeline and micro_batch. With r_g
// lanes on pool g, max(W / r, ceil(B / r) S) becomes max(U / sum(r_g / W_g), T'), where U is the sum over micro-batches
// of the least t_g / W_g of their times t_g (1 where pools differ by a factor alone), and T' the least time in which
// all lanes together can do B micro-batches of S_g each. F and L are those of the faster pool, and R has the exchange
// over the slowest of all networks between the replicas.
//
// LX-1 (memory): no layouts are returned that need more than the stated share of a device's memory, those of sections
//       that share devices together.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "actors/layouts/job_probes.hpp"
#include "actors/layouts/planned_keys.hpp"
#include "actors/layouts/priced_times.hpp"
#include "runtime/estimate/described_cluster.hpp"

namespace maestro {

/// Consecutive replicas of a section on a pool.
struct PoolShare {
  std::size_t pool = 0;  ///< number in DescribedCluster::pools
  std::int64_t replicas = 0;
  double rate = 0;  ///< units of the job's cost model in a millisecond of a pass
  friend bool operator==(const PoolShare&, const PoolShare&) = default;
};

/// A layout of a section on the cluster.
struct ClusterLayout {
  SectionLayout layout;
  std::size_t pool = 0;         ///< number in DescribedCluster::pools; of the first replicas
  std::vector<PoolShare> more;  ///< the replicas behind them, on other pools
  std::size_t group = 0;        ///< sections of a group share their devices
  double bound_ms = 0;          ///< T(n)
  double work_ms = 0;           ///< of a step on each device: all but exchanges and waits
  double bytes = 0;             ///< of a device, estimated by a dry pass
  double resting_bytes = 0;     ///< of these, without micro-batches
  double pass_bytes = 0;        ///< of a micro-batch
  std::int64_t in_flight = 0;   ///< max_in_flight; 0: as without the plan
  double rate = 0;              ///< PoolShare::rate of the first replicas
  /// Returns all replicas by pool, the first ones before the others.
  [[nodiscard]] std::vector<PoolShare> shares() const;
  /// Sets max_in_flight, and the bytes with it.
  void keep_in_flight(std::int64_t batches);
};

using ClusterLayouts = std::map<std::string, ClusterLayout>;  // by section

/// Returns whether all sections have the same layouts on the same pools, in the same groups.
[[nodiscard]] bool same_layouts(const ClusterLayouts& one, const ClusterLayouts& other);

/// How the layouts of sections on the same devices are chosen. The default gives the least bound. A bound leaves out
/// that a stage waits for the turns of other sections, and that devices may be idle during exchanges.
struct Sharing {
  bool staged = true;    ///< sections may have stages
  double exchanges = 0;  ///< share of a section's exchanges in which its devices are taken to be idle
  friend bool operator==(const Sharing&, const Sharing&) = default;
};

/// Sections on the same devices.
struct SharedDevices {
  std::vector<ClusterLayout> layouts;  ///< in the order of the sections
  std::int64_t devices = 0;
  double bound_ms = 0;     ///< the longest step of a section, or the work of all on a device
  double expected_ms = 0;  ///< likewise, with the exchanges of Sharing; by which devices are given out
};

class ClusterLanes {
 public:
  /// `base`: the job without a chosen key; `headroom`: share of a device's memory that layouts may need. All outlive
  /// the lanes.
  ClusterLanes(const DescribedCluster& cluster, const JobPlan& base, const ChosenKeys& keys, double headroom,
               double hop_ms);

  /// Returns the layouts that a section may have on the cluster; `replicas` and `zero` are chosen later.
  [[nodiscard]] std::vector<SectionLayout> possible(const std::string& section) const;
  /// Layouts of a section that differ in their micro-batches alone, and their passes.
  class Priced;
  /// Prices a layout on every pool whose hosts it fills without a gap. Returns whether the memory of one suffices.
  /// `plan`: the job with it; `samples`: of a step. Thread-safe, where each thread has a `priced` of its own.
  bool price(const std::string& section, const SectionLayout& layout, const JobPlan& plan,
             std::span<const SampleRef> samples, Priced& priced);
  void add(const std::string& section, Priced priced);
  /// Gives a section the layouts of another, which does the same work (same_work()).
  void add_as(const std::string& section, const std::string& other);
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] bool has(const std::string& section) const { return lanes_.contains(section); }
  /// Sets the number of equal parts into which chosen layouts can be divided: their numbers of replicas are multiples
  /// of it, or of a divisor of it where a pool holds fewer than 32 multiples of a section. It is 1 at first.
  void set_parts(std::int64_t parts);

  /// Returns the layout with the fewest devices of a pool on which a step takes at most so long, within `most_devices`.
  [[nodiscard]] std::optional<ClusterLayout> fewest(const std::string& section, std::size_t pool, double most_ms,
                                                    std::int64_t most_devices) const;
  /// Returns the layouts of sections that share the fewest devices of a pool on which a step is expected to take at
  /// most so long.
  [[nodiscard]] std::optional<SharedDevices> fewest(const std::vector<std::string>& sections, std::size_t pool,
                                                    double most_ms, std::int64_t most_devices,
                                                    const Sharing& sharing) const;
  /// Returns the layout with a sixteenth more replicas, one at least, on so many more devices at most, and with the
  /// same micro-batches in flight. Where all micro-batches take equally long, so many more replicas that each has one
  /// less to do.
  [[nodiscard]] std::optional<ClusterLayout> grown(const std::string& section, const ClusterLayout& on,
                                                   std::int64_t more_devices) const;

  /// Returns the layout with micro-batches of so many samples; nothing where it was not priced, has replicas without
  /// work, or needs too much memory.
  [[nodiscard]] std::optional<ClusterLayout> with_micro_batch(const std::string& section, const ClusterLayout& on,
                                                              std::int64_t samples) const;

  /// Returns the layout with the least bound, of at most `most_ms`, whose replicas are on two pools or more, on up to
  /// so many devices of each; nothing where there is none. `allowed`: whether a layout that would be it may be. Of few
  /// replicas every number is tried, of more those in eighths; each number is a multiple, as described at set_parts().
  [[nodiscard]] std::optional<ClusterLayout> spread(const std::string& section, std::span<const std::int64_t> devices,
                                                    double most_ms,
                                                    const std::function<bool(const ClusterLayout&)>& allowed) const;

  [[nodiscard]] const DescribedPrices& prices(std::size_t pool) const { return prices_[pool]; }
  [[nodiscard]] PricedPasses& passes(std::size_t pool) { return passes_[pool]; }

 private:
  struct Lane {
    SectionLayout layout;  // with one replica
    std::size_t pool = 0;
    double work_ms = 0;
    double units = 0;  // of that work, by the job's cost model
    double fill_ms = 0;
    double longest_ms = 0;
    double shortest_ms = 0;
    std::int64_t batches = 0;
    double end_ms = 0;  // but for the optimizer
    double optimizer_ms = 0;
    double gradient_bytes = 0;
    double state_bytes = 0;        // optimizer state of a rank
    double resting_bytes = 0;      // of a rank without optimizer state and micro-batches
    double pass_bytes = 0;         // of a micro-batch
    double other_bytes = 0;        // of all but optimizer state, with the micro-batches of each stage
    std::size_t slowest = 0;       // stage
    std::vector<double> batch_ms;  // of that stage; empty once shared_work is known
    double shared_work = 0;        // U of all pools; 0: the slowest stage is not the same on all of them
    [[nodiscard]] std::int64_t devices() const { return layout.devices(); }
  };
  /// Whether a stage's ranks fit a host of the pool without a gap.
  [[nodiscard]] static bool fits(const SectionLayout& layout, const DescribedPool& pool);
  [[nodiscard]] Lane priced(const std::string& section, const SectionLayout& layout, std::size_t pool,
                            const JobPlan& plan, std::span<const SampleRef> samples,
                            const std::shared_ptr<DrySections>& dry, PricedPasses& passes) const;
  static void add_stage(Lane& lane, const JobPlan& plan, SectionId stage, PricedTimes& times,
                        const std::vector<EqualBatches>& batches);
  /// Returns the layout on so many replicas with its bound; nothing where the memory is too small.
  [[nodiscard]] std::optional<ClusterLayout> on(const Lane& lane, std::int64_t replicas, bool zero) const;
  struct Part {
    const Lane* lane = nullptr;
    std::int64_t replicas = 0;
  };
  /// Likewise on several pools, with lanes of one layout; nothing where the bound is above `most_ms`.
  [[nodiscard]] std::optional<ClusterLayout> across(const std::vector<Part>& parts, bool zero, double most_ms) const;
  /// Returns the least time in which the lanes do all micro-batches, if each were as short as the shortest.
  [[nodiscard]] static double all_batches_ms(const std::vector<Part>& parts);
  /// Sets `shared_work` of lanes of one layout on all pools that it fits.
  static void relate(std::span<Lane> lanes);
  /// A layout of a section among others on its devices.
  struct Sharer {
    ClusterLayout on;
    double busy_ms = 0;  // its work, and the share of its exchanges
  };
  /// Returns the layouts of a section on up to so many devices, the least busy ones first: none of which another has no
  /// longer a bound, is no busier and needs no more bytes. They are kept until layouts are added.
  [[nodiscard]] const std::vector<Sharer>& worthwhile(const std::string& section, std::size_t pool,
                                                      std::int64_t devices, const Sharing& sharing) const;
  /// Returns the layouts that sections have together on up to so many devices, with which these are busy least, or the
  /// longest step of a section is shortest where that is longer.
  [[nodiscard]] std::optional<SharedDevices> together(const std::vector<std::string>& sections, std::size_t pool,
                                                      std::int64_t devices, const Sharing& sharing) const;
  /// Returns the lane of a layout's degrees, on the pool of its first replicas; null: there is none.
  [[nodiscard]] const Lane* lane_of(const std::string& section, const ClusterLayout& on) const;
  /// Returns the divisor of the parts of which the lane's replicas are multiples.
  [[nodiscard]] std::int64_t multiple_of(const Lane& lane) const;
  [[nodiscard]] std::vector<bool> zero_choices(const std::string& section) const;
  [[nodiscard]] std::int64_t given_replicas(const std::string& section) const;

  const DescribedCluster* cluster_;
  const JobPlan* base_;
  const ChosenKeys* keys_;
  double headroom_;
  double hop_ms_;
  std::int64_t parts_ = 1;
  std::vector<DescribedPrices> prices_;  // by pool
  std::vector<PricedPasses> passes_;     // likewise
  std::map<std::string, std::vector<Lane>> lanes_;
  PortValues values_;
  using SharersOf = std::tuple<std::string, std::size_t, std::int64_t, bool, double>;  // arguments of worthwhile()
  mutable std::map<SharersOf, std::vector<Sharer>> sharers_;
};

class ClusterLanes::Priced {
  friend class ClusterLanes;
  std::vector<Lane> lanes_;
  std::map<std::size_t, PricedPasses> passes_;  // by pool
};

/// Returns the time that a device of the busiest group works, where the passes of a section take `longer` times as
/// long, 1 at most: no step takes less, and no rehearsal of it.
[[nodiscard]] double busiest_ms(const ClusterLayouts& layouts, const std::string& section = {}, double longer = 1);

/// Returns the prices of exchanges between replicas on these pools: those of the slowest network between two of them.
[[nodiscard]] DescribedPrices exchange_prices(const DescribedCluster& cluster, std::span<const PoolShare> shares);

}  // namespace maestro
