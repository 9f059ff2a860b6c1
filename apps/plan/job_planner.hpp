// SPDX-License-Identifier: Apache-2.0
// Chooses the layouts of a job's sections on the CPUs or the GPUs of this machine: micro-batches, degrees and
// devices with which a step takes the least time. Keys that the job gives stand; missing keys are chosen.
//
// Each section's layouts are priced by their calls. Layouts of the job are compared by the work of their busiest device
// (or core, if devices share cores), as if replicas shared work evenly, and the best are rehearsed with the job's
// policy on its samples. Then max_in_flight of sections that await gradients is raised if that gains time, and replicas
// of the best layout get contexts of their own (possible_mixes) if that does. If sections of the best layout use the
// same GPUs without filling them, shares of the multiprocessors are measured and tried.
//
// JP-1 (job stands): a key that the job gives and that is not varied has its value in every layout.
// JP-2 (no clock): equal jobs, options and prices give equal rankings.
// JP-3 (runs as it is): the settings of every ranked layout resolve on the machine's devices, as App::plan() has
//       resolved them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/plan/certainty.hpp"
#include "apps/plan/job_prices.hpp"
#include "apps/plan/planned_keys.hpp"
#include "runtime/rehearsal/rehearsed_shares.hpp"

namespace maestro {

struct JobPlannerOptions {
  PlannedMachine machine;
  double headroom = 0.92;        ///< share of a GPU's memory that layouts may need
  std::set<std::string> varied;  ///< "teacher.micro_batch", "micro_batch" of all sections, "all"
  std::size_t least = 5;         ///< layouts that are rehearsed whatever their bounds are
  std::size_t most = 200;        ///< layouts that are rehearsed before the neighbours of the best
  double hop_ms = usual_hop_ms;
  CompletionLengths lengths;  ///< lengths of the samples that a generator makes
};

/// A rehearsed job layout.
struct RankedLayout {
  std::map<std::string, SectionLayout> sections;
  std::map<std::string, std::vector<std::int64_t>> mixes;  ///< contexts by replica in place of a layout's; empty: none
  std::string kind;                                        ///< device kind: "cpu", "cuda"
  std::map<std::string, std::vector<int>> devices;
  std::map<std::string, double> shares_of_devices;  ///< shares of GPUs; other sections have full devices
  std::vector<std::string> settings;                ///< chosen keys as for --set
  std::vector<std::string> more;                    ///< settings that are not layout keys
  double step_ms = 0;
  double bound_ms = 0;
  double bytes = 0;                                ///< memory of all ranks, estimated
  std::map<std::string, double> bytes_of_devices;  ///< bytes by device, "cpu:0", without the corpus
  std::map<std::string, SectionShares> shares;
  std::map<std::string, double> passes_ms;  ///< passes of a step by section, the mean of its replicas and stages
  double generator_ms = 0;                  ///< work of a generator per step, the mean of its replicas; 0: none
  double rollout_ms = 0;                    ///< Rehearsed::rollouts_ms, their median; 0: none
  PriceSources sources;
};

/// A layout that differs from the best in a single key.
struct Alternative {
  std::string change;  ///< "student.tensor = 2"
  double step_ms = 0;
};

struct LayoutRanking {
  /// Layouts by step_ms; layouts within a hundredth of the best are ordered by devices, then degrees, then memory.
  std::vector<RankedLayout> best;
  std::vector<Alternative> alternatives;
  double least_bound_ms = 0;  ///< least bound of the compared layouts, by the lower price of each call
  std::uint64_t compared = 0;
  std::size_t priced = 0;   ///< section layouts
  std::size_t refused = 0;  ///< section layouts that the job cannot have
  std::size_t rehearsed = 0;
  std::string first_refusal;  ///< reason of the first refusal
  /// Fraction of the best rates that sections on the same GPUs reach without shares, if shares were not tried; else 0.
  double filled = 0;
};

/// A layout's lanes in virtual time.
struct LaneRehearsal {
  Rehearsed rehearsed;
  SectionGraph graph;
};

/// Not thread-safe.
class JobPlanner {
 public:
  /// Resolves the job with these settings; throws JobError if it cannot have them.
  using Resolve = std::function<ResolvedJob(const std::vector<std::string>& settings)>;
  /// Throws the errors of ChosenKeys, or JobError if no layout fits a section.
  JobPlanner(Resolve resolve, JobPlannerOptions options, MachinePrices& prices);

  using Progress = JobPrices::Progress;
  /// Measures the calls of layouts that lack a price. If the job gives sections shares of GPUs, measures them on shares
  /// too. `progress` receives a line for each layout.
  void measure(SectionProfiler& profiler, const Progress& progress);
  /// Throws JobError if no layout resolves. `profiler`: measures sections on shares of GPUs that may gain and have
  /// no prices yet; without it such shares are not tried.
  [[nodiscard]] LayoutRanking rank(SectionProfiler* profiler = nullptr, const Progress& progress = {});
  /// Rehearses the best layouts with longer and shorter passes of each section.
  [[nodiscard]] std::vector<Certainty> certainties(const LayoutRanking& ranking);
  /// Rehearses a ranked layout again.
  [[nodiscard]] LaneRehearsal rehearsal(const RankedLayout& layout);
  /// Returns whether shares of GPUs are chosen: the job gives none, and has two sections or more.
  [[nodiscard]] bool chooses_shares() const;

  [[nodiscard]] const ChosenKeys& keys() const { return keys_; }
  [[nodiscard]] const ResolvedJob& base() const { return base_; }
  [[nodiscard]] const CompletionLengths& lengths() const { return options_.lengths; }
  /// Returns the samples that a generator makes for a step.
  [[nodiscard]] std::vector<MadeLengths> made_samples() const;
  [[nodiscard]] const PlannedMachine& machine() const { return options_.machine; }

 private:
  struct Choice {
    SectionLayout layout;
    ResolvedJob plan;  // with this layout, the others as the job has them
  };
  struct Choices {
    std::string section;
    std::vector<int> devices;            // given
    std::optional<std::size_t> follows;  // index of the section whose devices it has
    std::vector<Choice> layouts;
  };
  void find_choices(const std::string& section);
  [[nodiscard]] PricedLayout priced(const Choices& of, const Choice& choice);
  /// Returns whether the job itself has sections with a share of a GPU.
  [[nodiscard]] bool gives_shares() const;
  /// Rehearses a layout once; null if it does not resolve.
  const RankedLayout* rehearsed(const std::vector<LayoutChoices>& choices, const JobLayout& layout);
  /// Rehearses the layouts that differ from one in a single key of a section.
  [[nodiscard]] std::vector<Alternative> neighbours_of(const std::vector<LayoutChoices>& choices,
                                                       const JobLayout& centre);
  /// Rehearses a layout with shares of the GPUs that several of its sections use, unless these fill them.
  void try_shares(const std::vector<LayoutChoices>& choices, const JobLayout& centre, SectionProfiler* profiler,
                  const Progress& progress, LayoutRanking& ranking);
  /// Rehearses a layout with each division of the sharers' GPUs.
  [[nodiscard]] std::vector<Alternative> shared(const std::vector<LayoutChoices>& choices, const JobLayout& centre,
                                                const std::vector<std::size_t>& sharers);
  /// Returns the layout with more micro-batches in flight, if a section awaits gradients and that gains.
  [[nodiscard]] JobLayout with_more_in_flight(const std::vector<LayoutChoices>& choices, JobLayout layout);
  /// Returns the layout with the mix of each section that gains most, if one gains. Adds what others take.
  [[nodiscard]] JobLayout with_mixes(const std::vector<LayoutChoices>& choices, JobLayout layout,
                                     std::vector<Alternative>& others);
  [[nodiscard]] SearchedDevices searched() const {
    return {static_cast<int>(options_.machine.devices), options_.machine.cores};
  }
  /// Throws JobError for a share of the job that is not in measured_shares.
  void check_shares() const;
  [[nodiscard]] double most_bytes() const { return options_.headroom * options_.machine.memory_bytes; }
  /// Returns the layouts rehearsed so far, in order.
  [[nodiscard]] std::vector<RankedLayout> ranked_layouts() const;

  Resolve resolve_;
  JobPlannerOptions options_;
  ResolvedJob base_;
  ChosenKeys keys_;
  std::vector<TracedUnit> units_;  // first steps of the job, for every layout
  JobPrices prices_;
  std::vector<Choices> choices_;
  std::size_t refused_ = 0;
  std::string first_refusal_;
  std::map<std::vector<std::string>, RankedLayout> rehearsed_;  // by settings
  std::map<std::vector<std::string>, JobLayout> layouts_;       // by settings
};

}  // namespace maestro
