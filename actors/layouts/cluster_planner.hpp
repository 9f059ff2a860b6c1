// SPDX-License-Identifier: Apache-2.0
// Chooses the layouts of a job's sections on a described cluster, and the pool of each: sections have devices of their
// own, or share them in groups. With `kept` one section keeps its layout, and the others get the fewest devices of
// their own with which it waits no longer than a share of the time; else all get devices with which a step takes the
// least time, or costs least.
//
// Devices are given out by the bounds of ClusterLanes, for every division of the sections into groups. The best
// divisions are rehearsed, those with shared devices in up to four sets of layouts (Sharing), for each of which devices
// are given out anew, since bounds leave out what layouts on shared devices wait for. A rehearsal that takes longer
// than its bound is repeated with more micro-batches in flight; where the critical section still waits, run keys
// (speeds, slots) and more devices are tried, the keys also for the closest rivals. Layouts of equal parts are compared
// by one part (ClusterPart), and on many devices chosen so that they have such parts; the choice is rehearsed at full
// size.
//
// Where pools differ, a section without shared devices may get replicas on several of them: each is tried, with the
// others on the fewest devices for a step of a time, by bisection over that time; a rehearsal decides.
//
// CY-1 (within the cluster): a choice has at most the cluster's devices, the ranks of a stage on one host, and needs at
//       most the stated share of a device's memory.
// CY-2 (no clock): equal jobs, clusters and options give equal choices.
#pragma once

#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "actors/layouts/allocator.hpp"
#include "actors/layouts/certainty.hpp"
#include "actors/layouts/cluster_lanes.hpp"
#include "actors/layouts/cluster_rehearsal.hpp"
#include "runtime/estimate/rehearsed_shares.hpp"

namespace maestro {

/// The devices of a section that shares none, for the rehearsals of a plan.
inline const std::string own_devices = R"(["emulated"])";

/// The share of a step that more devices or other keys have to gain.
inline constexpr double least_plan_gain = 0.005;

struct ClusterPlannerOptions {
  std::set<std::string> varied;  ///< ChosenKeys
  std::string kept;              ///< section that keeps its layout ("extra"); empty: none
  double stall = 0.01;           ///< share of the time in which the kept section may wait for others
  double headroom = 0.92;        ///< share of a device's memory that layouts may need
  double hop_ms = 0.03;          ///< RehearsalTimes::hop_ms
  bool slots = true;             ///< transport.slots is chosen
  bool cheapest = false;         ///< of a step, instead of the fastest; every pool needs a price
  double most_per_hour = std::numeric_limits<double>::infinity();  ///< price of all hosts
  std::set<std::string>
      planned_speeds;  ///< sections whose `speed` is of an earlier plan, so that another may be chosen
};

/// Another division of the sections into groups that was examined, and not chosen.
struct RivalDivision {
  std::string text;  ///< "teacher and student together"
  ClusterLayouts layouts;
  double step_ms = 0;     ///< rehearsed, or at least
  bool rehearsed = true;  ///< false: the work of its busiest device alone takes longer than the choice
  double price_per_hour = 0;
  double more = 0;  ///< time of a step, or its cost where that is the aim, as a share above the choice
};

struct ClusterChoice {
  ClusterLayouts sections;
  PlayedLayouts played;       ///< at full size
  double bound_ms = 0;        ///< of the choice: its slowest section
  double least_bound_ms = 0;  ///< of all choices, within the price; at most the rehearsed step
  double apart_bound_ms = 0;  ///< of those in which no two sections share devices; 0: none fits
  double stall = 0;           ///< of the section that is critical
  std::string critical;       ///< the kept section, else the one with the largest bound
  std::int64_t devices = 0;
  std::vector<std::int64_t> hosts;  ///< of each pool
  double price_per_hour = 0;        ///< of these hosts
  std::vector<Allocation> front;    ///< time against cost, by bounds; empty: a pool has no price, or a section is kept
  std::size_t priced = 0;           ///< layouts of sections
  std::size_t refused = 0;
  std::size_t rehearsed = 0;
  std::string first_refusal;
  std::vector<RivalDivision> rivals;   ///< the nearest first
  std::vector<Certainty> certainties;  ///< beside the rivals; the critical section first, as far as they were examined
  std::vector<std::string> settings;   ///< as for --set: the chosen keys, with devices and processes of a real cluster
};

/// The fastest layouts on some devices of a pool, rehearsed: a cell of the curve that a cluster's scheduler reads.
struct ClusterCell {
  std::size_t pool = 0;
  std::int64_t devices = 0;  ///< that are given; the layouts may have fewer
  ClusterLayouts sections;
  double step_ms = 0;
  double busy = 0;   ///< share of the devices' time in passes and step ends
  double bytes = 0;  ///< of the device that needs most
  double price_per_hour = 0;
  std::vector<std::string> settings;
};

/// Not thread-safe.
class ClusterPlanner {
 public:
  /// Called by one thread at a time, though not always by the same; its results are independent of each other.
  using Resolve = std::function<JobPlan(const std::vector<std::string>& settings)>;
  /// `resolve` gets settings that put every section on emulated devices. Throws the errors of ChosenKeys, and JobError
  /// for a kept section that the job has not, or to which it gives no replicas, and for a cost where a pool has no
  /// price.
  ClusterPlanner(Resolve resolve, DescribedCluster cluster, ClusterPlannerOptions options);
  ClusterPlanner(const ClusterPlanner&) = delete;  // parts refer to each other
  ClusterPlanner& operator=(const ClusterPlanner&) = delete;

  /// Throws JobError where the cluster is too small, or the price too low.
  [[nodiscard]] ClusterChoice choose();
  /// Returns a cell for 1, 2, 4, ... and all devices of each kind's largest pool alone, where they are enough and no
  /// fewer of them are as fast.
  [[nodiscard]] std::vector<ClusterCell> cells();
  [[nodiscard]] const JobPlan& base() const { return base_; }

 private:
  struct Division {
    std::vector<std::vector<std::string>> groups;  // sections that share devices
    Sharing sharing = {};
  };
  struct Candidate {
    Division division = {};
    Allocation allocation;          // as the options ask for
    double least_bound_ms = 0;      // of the fastest
    std::vector<Allocation> front;  // where all pools have prices
  };
  struct RunKeys {  // beside the layouts
    bool speeds = false;
    std::int64_t slots = 0;  // 0: as the job has
    friend bool operator==(const RunKeys&, const RunKeys&) = default;
  };
  struct Tried {
    ClusterLayouts layouts;
    PlayedLayouts played;
    double price_per_hour = 0;
    std::int64_t devices = 0;
    std::string text = {};  // RivalDivision::text
  };
  [[nodiscard]] std::vector<std::string> emulated(const std::string& section, const SectionLayout& layout,
                                                  const std::string& devices) const;
  void check_options() const;
  struct LayoutRun {  // from the smallest micro-batch on
    std::string section;
    std::vector<SectionLayout> layouts;  // that differ in their micro-batches alone
  };
  struct PricedRun {
    std::string section;
    ClusterLanes::Priced priced;
    std::size_t refused = 0;
    std::string first_refusal;
  };
  /// Thread-safe; plans are resolved one at a time.
  [[nodiscard]] PricedRun priced(const LayoutRun& run, std::mutex& resolving);
  /// Returns the sections that have the keys to choose and the work (same_work()) of one before them, which it names.
  [[nodiscard]] std::map<std::string, std::string> repeated_sections() const;
  /// Prices the layouts of all sections, on all cores.
  void price_all();
  [[nodiscard]] std::vector<std::int64_t> all_devices() const;  // of each pool
  /// Returns every way to divide up to five sections, the one in which none share devices first; of more sections that
  /// and all together.
  [[nodiscard]] std::vector<Division> divisions() const;
  /// Returns the layout of the kept section in the pool where it is fastest. `devices`: of each pool at most.
  [[nodiscard]] std::optional<ClusterLayout> kept_layout(const std::vector<std::int64_t>& devices) const;
  [[nodiscard]] std::optional<SharedDevices> shared_by(const Division& division, std::size_t group, std::size_t pool,
                                                       double most_ms, const std::vector<std::int64_t>& devices) const;
  [[nodiscard]] Allocator allocator(const Division& division, const std::vector<std::int64_t>& devices) const;
  /// Returns the layouts that an allocator for these devices has counted.
  [[nodiscard]] ClusterLayouts layouts_of(const Division& division, const Allocation& allocation,
                                          const std::vector<std::int64_t>& devices) const;
  /// Returns a division once for each Sharing that is rehearsed; one without shared devices as it is.
  [[nodiscard]] std::vector<Division> variants_of(const Division& division) const;
  /// Returns the allocation as the options ask for; nothing where none fits.
  [[nodiscard]] std::optional<Allocation> allocated(const Division& division,
                                                    const std::vector<std::int64_t>& devices) const;
  /// Returns the allocation of every division that fits, in the order of divisions().
  [[nodiscard]] std::vector<Candidate> candidates(const std::vector<std::int64_t>& devices) const;
  /// Returns the layouts with which the kept section waits for none, by bounds.
  [[nodiscard]] std::optional<Candidate> hidden_by_kept() const;
  [[noreturn]] void fail_as_too_small() const;
  /// Whether equal parts have equal work: of equal samples, with all replicas chosen and no speed given.
  [[nodiscard]] bool has_parts() const;
  /// Sets the number of equal parts of plans for so many devices: a divisor of the samples of a step and the devices of
  /// every pool.
  void divide(std::int64_t devices);
  /// Returns the number of equal parts of which one is rehearsed in place of all.
  [[nodiscard]] std::int64_t parts_of(const ClusterLayouts& layouts) const;
  /// Returns the settings of layouts on emulated devices, with the run's keys.
  [[nodiscard]] std::vector<std::string> rehearsed_settings(const ClusterLayouts& layouts) const;
  /// Returns the rehearsal of a part of the layouts with the run's keys; the latest ones are kept.
  [[nodiscard]] const ClusterRehearsal& rehearsal_of(const ClusterLayouts& layouts, std::int64_t parts);
  [[nodiscard]] const ClusterRehearsal& rehearsal_of(const ClusterLayouts& layouts) {
    return rehearsal_of(layouts, parts_of(layouts));
  }
  /// Rehearses layouts, or an equal part of them.
  [[nodiscard]] PlayedLayouts play(const ClusterLayouts& layouts);
  /// Likewise, with more micro-batches in flight where the layouts gain by them.
  [[nodiscard]] PlayedLayouts play_in_flight(ClusterLayouts& layouts);
  /// Returns the rehearsal of all replicas; `played`: of the layouts, or of an equal part of them.
  [[nodiscard]] PlayedLayouts played_whole(const ClusterLayouts& layouts, PlayedLayouts played);
  /// Returns the layouts with `times` as many micro-batches in flight of each section that awaits gradients, where the
  /// job gives no number and the memory of all pools suffices; nothing where this holds for none.
  [[nodiscard]] std::optional<ClusterLayouts> with_in_flight(const ClusterLayouts& layouts, std::int64_t times) const;
  /// Returns the layouts with `times` as large micro-batches of these sections, as far as memory suffices; nothing
  /// where it does for none.
  [[nodiscard]] std::optional<ClusterLayouts> with_batches(const ClusterLayouts& layouts,
                                                           const std::vector<std::string>& sections,
                                                           double times) const;
  /// Returns the layouts with the micro-batches with which their rehearsal is shortest, all else being equal.
  [[nodiscard]] Tried with_best_batches(Tried tried);
  /// Returns the step of a section where the passes of all others take no time.
  [[nodiscard]] double alone_ms(const ClusterLayouts& layouts, const std::string& section);
  /// Returns layouts that are not rehearsed yet.
  [[nodiscard]] Tried untried(std::string text, ClusterLayouts layouts) const;
  /// `step_ms`: of a rehearsal, else the least.
  void add_rival(const Tried& rival, double step_ms, bool rehearsed = true);
  /// Rehearses candidates and returns the best of them; the others are rivals.
  [[nodiscard]] Tried best_of(const std::vector<Candidate>& candidates, const std::vector<std::int64_t>& devices);
  /// "teacher and student together, without stages", "all apart"
  [[nodiscard]] static std::string text_of(const Division& division);
  /// Returns the rivals of a choice: the fastest of each text, and none of the choice's own.
  [[nodiscard]] std::vector<RivalDivision> rivals_of(const Tried& choice);
  /// Returns the candidates that are worth a rehearsal, in order; the one without shared devices is among them.
  [[nodiscard]] std::vector<const Candidate*> promising(const std::vector<Candidate>& candidates) const;
  /// Orders the rivals of a choice, and examines how sure it is beside them.
  void compare_rivals(const ClusterLayouts& layouts, ClusterChoice& chosen);
  [[nodiscard]] std::vector<Certainty> certainties(const ClusterLayouts& layouts, const ClusterChoice& chosen);
  /// Whether a choice stays within a hundredth of its rivals where the passes of a section take `longer` times as long.
  /// `left`: micro-batches of rehearsals; where they do not suffice, it does not.
  [[nodiscard]] bool stays(const ClusterLayouts& layouts, const std::vector<RivalDivision>& rivals,
                           const std::string& section, double longer, std::size_t& left);
  /// Whether the job gives the section's speed.
  [[nodiscard]] bool gives_speed(const std::string& section) const {
    return base_.settings.contains(section + ".speed") && !options_.planned_speeds.contains(section);
  }
  /// Whether a section of its own devices may have replicas on several pools.
  [[nodiscard]] bool may_spread(const std::vector<std::string>& group) const;
  /// Returns layouts with a step of at most so long by bounds, in which the section that is this group is on several
  /// pools, and the other groups have the fewest devices of the pools that `base` gives them.
  [[nodiscard]] std::optional<ClusterLayouts> spread_over(const Candidate& base, std::size_t group,
                                                          double most_ms) const;
  /// Returns those with the least bound, within `most_ms`, over all groups.
  [[nodiscard]] std::optional<ClusterLayouts> best_spread(const Candidate& base, double most_ms) const;
  [[nodiscard]] static double bound_of(const ClusterLayouts& layouts);
  /// Returns the layouts with a section on several pools where they are faster than the best so far, which is of
  /// `candidates`; lowers the bounds of `chosen`.
  [[nodiscard]] Tried spread(Tried best, const std::vector<Candidate>& candidates, ClusterChoice& chosen);
  /// Returns the section that the critical one waits for most; empty: none can have more replicas.
  [[nodiscard]] std::string most_wanted(const ClusterLayouts& layouts, const PlayedLayouts& played,
                                        const std::string& critical) const;
  /// Returns the layouts with more replicas of a section; nothing where there is no room or money for them.
  [[nodiscard]] std::optional<ClusterLayouts> grown(const ClusterLayouts& layouts, const std::string& section) const;
  /// Grows the other sections until the critical one waits no longer than it may, or nothing can grow; without a kept
  /// section also until more devices gain nothing. `played`: of the layouts.
  void grow_until_hidden(ClusterLayouts& layouts, PlayedLayouts played, ClusterChoice& chosen);
  /// Returns the settings beside the layouts: speeds that the job does not give, relative to the fastest section,
  /// slots, and micro-batches in flight. A section on several pools has a speed for each replica in any case.
  [[nodiscard]] std::vector<std::string> run_settings(const ClusterLayouts& layouts) const;
  /// Sets the run's keys with which the layouts are fastest, where they gain; returns the rehearsal with them.
  [[nodiscard]] PlayedLayouts tuned(const ClusterLayouts& layouts, PlayedLayouts played);
  /// Returns the fastest of these layouts and their closest rivals, each with its own keys; the layouts themselves
  /// where the cheapest are wanted.
  [[nodiscard]] Tried tuned(Tried best);
  [[nodiscard]] ClusterCell cell_of(const Tried& tried) const;
  [[nodiscard]] std::vector<std::string> placed(const ClusterLayouts& layouts) const;

  Resolve resolve_;
  DescribedCluster cluster_;
  ClusterPlannerOptions options_;
  JobPlan base_;
  ChosenKeys keys_;
  std::vector<TracedUnit> units_;  // of every layout: the first steps
  bool equal_samples_;             // of these
  ClusterLanes lanes_;
  RunKeys keys_of_run_;
  struct Kept {
    std::vector<std::string> settings;
    std::unique_ptr<ClusterRehearsal> rehearsal;
  };
  std::list<Kept> kept_;  // the latest first
  std::vector<RivalDivision> rivals_;
  std::size_t refused_ = 0;
  std::string first_refusal_;
  std::size_t rehearsed_ = 0;
};

}  // namespace maestro
