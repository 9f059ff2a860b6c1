// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/job_planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <list>
#include <set>
#include <tuple>

#include "actors/job/memory_table.hpp"
#include "actors/job/pass_memory.hpp"
#include "apps/plan/mixed_layouts.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/graph/replica_mix.hpp"

namespace maestro {

namespace {

constexpr std::size_t rehearsed_steps = 11;  // besides the steps that sections are ahead
constexpr double close_ms = 0.01;            // share of a step within which layouts count as equal
constexpr std::size_t most_rivals = 8;       // best layouts that certainties() compares
constexpr int most_rounds = 8;               // searches among neighbours
constexpr double least_gain = 0.005;         // share of a step that more micro-batches in flight must gain

DeviceId::Kind kind_of(const PlannedMachine& machine) {
  return machine.gpus == nullptr ? DeviceId::Kind::cpu : DeviceId::Kind::cuda;
}

/// Returns how to plan for devices of a kind.
std::string other_machine(DeviceId::Kind kind) {
  if (kind == DeviceId::Kind::cuda) return ", or give --devices to plan for GPUs";
  return kind == DeviceId::Kind::cpu ? ", or give --cpu-devices to plan for CPUs" : "";
}

/// Returns the bytes that a section needs on each of its devices, in their order.
std::vector<double> bytes_of(const ResolvedJob& plan, const std::string& section, const SectionLayout& layout) {
  const std::vector<SectionId> stages = plan.graph.stages_of(section);
  const auto ranks = static_cast<std::size_t>(layout.tensor * layout.context);
  const auto of_replica = static_cast<std::size_t>(layout.pipeline) * ranks;
  std::vector<double> bytes(static_cast<std::size_t>(layout.replicas) * of_replica);
  const MemoryEstimate estimate = estimate_memory(plan);
  for (const RankMemory& rank : estimate.ranks) {
    const auto stage = std::ranges::find(stages, rank.section) - stages.begin();
    if (stage == std::ssize(stages)) continue;
    const auto group = static_cast<std::size_t>(stage % layout.pipeline);
    bytes[rank.replica.value() * of_replica + group * ranks + rank.rank.value()] += rank.use.on_device();
  }
  return bytes;
}

/// Throws JobError, as the sections do not fit into a device's memory.
[[noreturn]] void fail_as_too_large(const std::vector<LayoutChoices>& choices, double most_bytes) {
  std::string needs;
  for (const LayoutChoices& of : choices) {
    double least = std::numeric_limits<double>::infinity();
    for (const PricedLayout& layout : of.layouts) {
      if (!layout.bytes.empty()) least = std::min(least, std::ranges::max(layout.bytes));
    }
    needs += (needs.empty() ? "" : ", ") + of.section + " " + text_of_bytes(least);
  }
  throw JobError("no layout of the job fits into " + text_of_bytes(most_bytes) +
                 " per GPU; the sections need at least " + needs +
                 " per GPU: plan for more GPUs, or free tensor, pipeline, zero or micro_batch with --vary");
}

/// Returns a layout's costs other than time: devices, then degrees, then memory to 10 MB.
std::tuple<std::int64_t, std::int64_t, double> cost_of(const RankedLayout& layout) {
  std::int64_t devices = 0;
  std::int64_t degrees = 0;
  for (const auto& [name, section] : layout.sections) {
    devices += section.devices();
    degrees +=
        section.tensor + section.context + section.stages() + (section.zero ? 1 : 0) + (section.expert > 1 ? 1 : 0);
  }
  degrees += std::ssize(layout.mixes);
  return {devices, degrees, std::round(layout.bytes / 1e7)};
}

/// Returns the sections of a layout that have devices in common with `first`, it included.
std::vector<std::size_t> sharers_of(std::size_t first, const JobLayout& layout) {
  std::vector<std::size_t> sharers;
  for (std::size_t section = 0; section < layout.devices.size(); ++section) {
    const bool common = std::ranges::any_of(layout.devices[section], [&](int device) {
      return std::ranges::find(layout.devices[first], device) != layout.devices[first].end();
    });
    if (common) sharers.push_back(section);
  }
  return sharers;
}

/// Gives sections that follow another one its devices. Returns false if their layouts need another number.
bool align_followers(const std::vector<LayoutChoices>& choices, JobLayout& layout) {
  for (std::size_t section = 0; section < choices.size(); ++section) {
    if (!choices[section].follows) continue;
    const std::vector<int>& devices = layout.devices[*choices[section].follows];
    const SectionLayout& own = choices[section].layouts[layout.layouts[section]].layout;
    if (own.devices() != std::ssize(devices)) return false;
    layout.devices[section] = devices;
  }
  return true;
}

/// Returns the context degrees of the layouts that differ from one in replicas, context and `zero` only.
std::set<std::int64_t> contexts_of(const LayoutChoices& choices, const SectionLayout& one) {
  std::set<std::int64_t> contexts;
  for (const PricedLayout& other : choices.layouts) {
    SectionLayout same = other.layout;
    same.replicas = one.replicas;
    same.context = one.context;
    same.zero = one.zero;
    if (same == one) contexts.insert(other.layout.context);
  }
  return contexts;
}

/// Returns the ways to divide a device among so many sections, each a share of measured_shares; one for one section.
std::vector<std::vector<double>> divided_shares(std::size_t sections) {
  std::vector<std::vector<double>> divisions;
  std::vector<double> made;
  const std::function<void(double)> extend = [&](double left) {
    if (made.size() + 1 == sections) {
      made.push_back(left);
      divisions.push_back(made);
      made.pop_back();
      return;
    }
    const double others = measured_shares.front() * static_cast<double>(sections - made.size() - 1);
    for (double share = measured_shares.front(); share <= left - others; share += measured_shares.front()) {
      made.push_back(share);
      extend(left - share);
      made.pop_back();
    }
  };
  const bool possible = sections > 0 && static_cast<double>(sections) * measured_shares.front() <= 1;
  if (possible) extend(1);
  return divisions;
}

using RankDegrees = std::array<std::int64_t, 3>;  // tensor, context, expert

std::string text_of(const RankDegrees& degrees) {
  return "tensor " + std::to_string(degrees[0]) + ", context " + std::to_string(degrees[1]) +
         (degrees[2] > 1 ? ", expert " + std::to_string(degrees[2]) : "");
}

/// Layouts that share one built section, as building it takes longer than its passes.
struct MeasuredLayouts {
  const ResolvedJob* plan;
  std::vector<MicroBatchPlan> batches;
  std::string samples;
};

}  // namespace

JobPlanner::JobPlanner(Resolve resolve, JobPlannerOptions options, MachinePrices& prices)
    : resolve_(std::move(resolve)),
      options_(std::move(options)),
      base_(resolve_({})),
      keys_(base_, options_.varied),
      units_(first_steps(base_, rehearsed_steps + static_cast<std::size_t>(base_.train.ahead), options_.lengths)),
      prices_(prices, options_.machine, options_.hop_ms, units_.front().samples) {
  if (generates(base_) && options_.machine.gpus != nullptr) {
    throw JobError("[" + base_.rollouts->name +
                   "] makes samples on CPU cores, and plan measures them only if it plans " +
                   "for CPUs: give --cpu-devices");
  }
  for (const std::string& section : keys_.sections()) {
    if (keys_.of(section).contains("devices")) continue;
    for (const DeviceId& device : base_.sections[base_.graph.stages_of(section).front().value()].config.devices) {
      if (device.kind == kind_of(options_.machine)) continue;
      throw JobError(section + ".devices: \"" + text_of(device) + "\": this plan is for " + options_.machine.text() +
                     "; leave devices out" + other_machine(device.kind));
    }
  }
  check_shares();
  for (const bool follow : {false, true}) {
    for (const std::string& section : keys_.sections()) {
      if (keys_.devices_of(section).empty() != follow) find_choices(section);
    }
  }
}

void JobPlanner::find_choices(const std::string& section) {
  Choices& choices = choices_.emplace_back();
  choices.section = section;
  const SectionId first = base_.graph.stages_of(section).front();
  const bool trained = base_.graph.node(first).trained();
  const std::string& other = keys_.devices_of(section);
  if (!other.empty()) {
    choices.follows =
        static_cast<std::size_t>(std::ranges::find(choices_, other, &Choices::section) - choices_.begin());
  } else if (!keys_.of(section).contains("devices")) {
    for (const SectionId stage : base_.graph.stages_of(section)) {
      const PlannedSection& of = base_.sections[stage.value()];
      if (of.stage.index >= of.config.pipeline) continue;  // on the devices of an earlier stage
      for (const DeviceId& device : of.config.devices) choices.devices.push_back(device.index);
    }
  }
  const std::int64_t experts = options_.machine.gpus == nullptr ? experts_of(base_, section) : 0;
  for (const SectionLayout& layout : keys_.standing(
           section, possible_layouts(options_.machine.devices, base_.train.global_batch, trained, experts))) {
    if (!choices.devices.empty() && std::ssize(choices.devices) != layout.devices()) continue;
    std::vector<int> devices;
    for (int device = 0; device < layout.devices(); ++device) devices.push_back(device);
    try {
      const std::string names = devices_text(options_.machine.kind(), devices);
      choices.layouts.push_back({layout, resolve_(other.empty() ? keys_.settings(section, layout, names)
                                                                : keys_.settings_on(section, layout, names))});
      if (std::isfinite(most_bytes())) add_pass_bytes(choices.layouts.back().plan, prices_.values());
    } catch (const JobError& refusal) {
      if (refused_++ == 0) first_refusal_ = refusal.what();
    }
  }
  if (!choices.layouts.empty()) return;
  throw JobError(section + ": no layout on " + options_.machine.text() + ": " +
                 (first_refusal_.empty() ? "the job's degrees need more devices" : first_refusal_));
}

PricedLayout JobPlanner::priced(const Choices& of, const Choice& choice) {
  const std::vector<double> stages = prices_.work_ms(choice.plan, of.section, choice.layout.replicas);
  std::vector<double> groups(static_cast<std::size_t>(choice.layout.pipeline));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) groups[stage % groups.size()] += stages[stage];
  PricedLayout layout{choice.layout, {}};
  if (options_.machine.gpus != nullptr) layout.bytes = bytes_of(choice.plan, of.section, choice.layout);
  for (std::int64_t replica = 0; replica < choice.layout.replicas; ++replica) {
    for (const double group : groups) {
      const auto ranks = static_cast<std::size_t>(choice.layout.tensor * choice.layout.context);
      layout.work_ms.insert(layout.work_ms.end(), ranks, group);
    }
  }
  return layout;
}

void JobPlanner::measure(SectionProfiler& profiler, const Progress& progress) {
  for (const Choices& choices : choices_) {
    std::map<RankDegrees, MeasuredLayouts> built;
    std::set<std::pair<RankDegrees, std::int64_t>> seen;
    for (const Choice& choice : choices.layouts) {  // the fewest replicas first
      // A stage makes calls of its section, and replicas make the same calls.
      if (choice.layout.pipeline > 1) continue;
      const RankDegrees degrees{choice.layout.tensor, choice.layout.context, choice.layout.expert};
      if (!seen.emplace(degrees, choice.layout.micro_batch).second) continue;
      const SectionId section = *choice.plan.graph.find(choices.section);
      const std::vector<MicroBatchPlan> batches = prices_.batches(choice.plan, section);
      const auto priced = [&](bool on_shares) { return prices_.has(choice.plan, batches.front(), on_shares); };
      if (batches.empty() || (priced(false) && (!gives_shares() || priced(true)))) continue;
      MeasuredLayouts& of = built.try_emplace(degrees, MeasuredLayouts{&choice.plan, {}, {}}).first->second;
      of.samples += (of.samples.empty() ? "" : ", ") + std::to_string(batches.front().samples.size());
      const std::vector<MicroBatchPlan> measured = measured_of(batches);
      of.batches.insert(of.batches.end(), measured.begin(), measured.end());
    }
    for (const auto& [degrees, of] : built) {
      progress(choices.section + ": micro-batches of " + of.samples + ", " + text_of(degrees));
      prices_.measure(*of.plan, of.batches, gives_shares(), profiler);
    }
  }
  if (!generates(base_) || prices_.has_generation(base_)) return;
  progress(base_.rollouts->name + ": prompts and tokens of up to " + std::to_string(base_.rollouts->config.slots) +
           " sequences");
  prices_.measure_generation(base_, profiler);
}

std::vector<MadeLengths> JobPlanner::made_samples() const {
  const std::optional<RehearsedRollout>& rollout = units_.front().rollout;
  return rollout ? rollout->samples : std::vector<MadeLengths>();
}

std::vector<Certainty> JobPlanner::certainties(const LayoutRanking& ranking) {
  struct Rival {
    Rival(JobPlanner& planner, ResolvedJob given) : plan(std::move(given)), times(planner.prices_, plan) {}
    ResolvedJob plan;
    PlannedTimes times;  // refers to the plan
  };
  std::list<Rival> rivals;
  for (std::size_t at = 0; at < std::min(ranking.best.size(), most_rivals); ++at) {
    rivals.emplace_back(*this, resolve_(ranking.best[at].settings));
  }
  const auto stays = [&](const std::string& section, double longer) {
    RehearsalChange change;
    change.faster[section] = 1 / longer;
    std::vector<double> steps;
    for (Rival& rival : rivals) {
      steps.push_back(
          rehearse_steps(rival.plan, units_, rival.times.times(), change).value_or_throw().time.period_ms());
    }
    return steps.front() <= std::ranges::min(steps) * (1 + close_ms);
  };
  std::vector<Certainty> certain;
  for (const std::string& section : keys_.sections()) {
    Certainty& of = certain.emplace_back(Certainty{section});
    for (const double longer : {0.9, 0.8, 0.7}) {
      if (!stays(section, longer)) break;
      of.least = longer;
    }
    for (const double longer : {1.1, 1.25, 1.4}) {
      if (!stays(section, longer)) break;
      of.most = longer;
    }
  }
  return certain;
}

LaneRehearsal JobPlanner::rehearsal(const RankedLayout& layout) {
  const ResolvedJob plan = resolve_(layout.settings);
  PlannedTimes times(prices_, plan);
  return {rehearse_steps(plan, units_, times.times()).value_or_throw().rehearsed, plan.graph};
}

const RankedLayout* JobPlanner::rehearsed(const std::vector<LayoutChoices>& choices, const JobLayout& layout) {
  RankedLayout ranked;
  ranked.kind = options_.machine.kind();
  for (std::size_t section = 0; section < choices.size(); ++section) {
    const SectionLayout& chosen = choices[section].layouts[layout.layouts[section]].layout;
    ranked.sections[choices[section].section] = chosen;
    ranked.devices[choices[section].section] = layout.devices[section];
    auto settings = keys_.settings(choices[section].section, chosen,
                                   devices_text(options_.machine.kind(), layout.devices[section]));
    if (!layout.contexts.empty() && !layout.contexts[section].empty()) {
      ranked.mixes[choices[section].section] = layout.contexts[section];
      settings = with_mix(std::move(settings), choices[section].section, layout.contexts[section]);
    }
    ranked.settings.insert(ranked.settings.end(), settings.begin(), settings.end());
    if (layout.shares.empty() || !(layout.shares[section] < 1)) continue;
    ranked.shares_of_devices[choices[section].section] = layout.shares[section];
    ranked.settings.push_back(choices[section].section + ".share=" + number_text(layout.shares[section]));
  }
  ranked.more = layout.settings;
  ranked.settings.insert(ranked.settings.end(), layout.settings.begin(), layout.settings.end());
  if (const auto found = rehearsed_.find(ranked.settings); found != rehearsed_.end()) return &found->second;
  try {
    ResolvedJob plan = resolve_(ranked.settings);
    PlannedTimes times(prices_, plan);
    const JobTimes known = times.times();
    const SteadyRehearsal steady = rehearse_steps(plan, units_, known).value_or_throw();
    std::vector<const StepPlan*> steps;
    for (const StepPlan& step : steady.plans) steps.push_back(&step);
    ranked.step_ms = std::max(steady.time.period_ms(), busiest_ms(plan, steps, known));
    ranked.bound_ms = bound_of(choices, layout, searched());
    if (!ranked.mixes.empty()) ranked.bound_ms = std::min(ranked.bound_ms, ranked.step_ms);  // is of equal replicas
    ranked.shares = section_shares(steady.rehearsed, plan.graph, steady.time);
    ranked.passes_ms = passes_ms(ranked.shares, steady.time.period_ms());
    if (generates(plan)) {
      ranked.generator_ms = ranked.passes_ms.extract(plan.rollouts->name).mapped();  // no run reports it as passes
      ranked.rollout_ms = quantile_of(steady.rehearsed.rollouts_ms, 0.5);
    }
    ranked.sources = times.sources();
    add_pass_bytes(plan, prices_.values());
    const MemoryEstimate memory = estimate_memory(plan);
    for (const auto& [device, bytes] : memory.devices) {
      if (bytes > most_bytes()) throw JobError(text_of(device.second) + " would need " + text_of_bytes(bytes));
    }
    for (const RankMemory& rank : memory.ranks) {
      const double bytes = rank.demand.on_cuda ? rank.use.on_device() : rank.use.sum();
      ranked.bytes += bytes;
      if (plan.graph.node(rank.section).role == Role::source) continue;  // in the host's memory
      const ReplicaPlacement* const place = find_place(plan.places, rank.section, rank.replica);
      ranked.bytes_of_devices[text_of(place->devices[rank.rank.value()])] += bytes;
    }
  } catch (const JobError& refusal) {
    if (refused_++ == 0) first_refusal_ = refusal.what();
    return nullptr;
  }
  layouts_[ranked.settings] = layout;
  const std::vector<std::string> key = ranked.settings;
  return &rehearsed_.emplace(key, std::move(ranked)).first->second;
}

std::vector<Alternative> JobPlanner::neighbours_of(const std::vector<LayoutChoices>& choices, const JobLayout& centre) {
  std::vector<Alternative> found;
  for (std::size_t section = 0; section < choices.size(); ++section) {
    const std::vector<PricedLayout>& layouts = choices[section].layouts;
    const SectionLayout& chosen = layouts[centre.layouts[section]].layout;
    for (std::size_t at = 0; at < layouts.size(); ++at) {
      const std::string key = only_difference(chosen, layouts[at].layout);
      if (key.empty()) continue;
      JobLayout neighbour = centre;
      neighbour.layouts[section] = at;
      std::vector<int>& devices = neighbour.devices[section];
      const int first = devices.front();
      devices.clear();
      for (int device = 0; device < layouts[at].layout.devices(); ++device) {
        devices.push_back((first + device) % static_cast<int>(options_.machine.devices));
      }
      if (!align_followers(choices, neighbour)) continue;
      const RankedLayout* const ranked = rehearsed(choices, neighbour);
      if (ranked == nullptr) continue;
      found.push_back(
          {choices[section].section + "." + key + " = " + value_of(layouts[at].layout, key), ranked->step_ms});
    }
  }
  std::ranges::stable_sort(found, {}, &Alternative::step_ms);
  return found;
}

JobLayout JobPlanner::with_more_in_flight(const std::vector<LayoutChoices>& choices, JobLayout layout) {
  const RankedLayout* best = rehearsed(choices, layout);
  for (const LayoutChoices& of : choices) {
    const ResolvedJob plan = resolve_(best->settings);
    const SectionId first = plan.graph.stages_of(of.section).front();
    if (base_.settings.contains(of.section + ".max_in_flight") || !plan.graph.splits_passes(first)) continue;
    const JobLayout before = layout;
    for (const std::int64_t times : {2, 4}) {
      JobLayout more = before;
      more.settings.push_back(of.section +
                              ".max_in_flight=" + std::to_string(times * plan.graph.node(first).max_in_flight));
      const RankedLayout* const ranked = rehearsed(choices, more);
      if (ranked == nullptr) break;
      if (ranked->step_ms > best->step_ms * (1 - least_gain)) {
        rehearsed_.erase(std::vector(ranked->settings));  // not to be ranked
        break;
      }
      best = ranked;
      layout = more;
    }
  }
  return layout;
}

JobLayout JobPlanner::with_mixes(const std::vector<LayoutChoices>& choices, JobLayout layout,
                                 std::vector<Alternative>& others) {
  for (std::size_t section = 0; section < choices.size(); ++section) {
    const LayoutChoices& of = choices[section];
    const std::set<std::string>& free = keys_.of(of.section);
    if (!free.contains("replicas") || !free.contains("context") || of.follows) continue;
    if (base_.settings.contains(of.section + ".context")) continue;
    const SectionLayout& alike = of.layouts[layout.layouts[section]].layout;
    if (alike.expert > 1) continue;  // such replicas are alike
    const double alike_ms = rehearsed(choices, layout)->step_ms;
    double best_ms = alike_ms * (1 - least_gain);
    JobLayout best = layout;
    for (const std::vector<std::int64_t>& mix :
         possible_mixes(alike.replicas * alike.context, contexts_of(of, alike))) {
      JobLayout mixed = layout;
      mixed.contexts.resize(choices.size());
      mixed.contexts[section] = mix;
      const RankedLayout* const ranked = rehearsed(choices, mixed);
      if (ranked == nullptr) continue;
      if (ranked->step_ms < best_ms) {
        best_ms = ranked->step_ms;
        best = std::move(mixed);
        continue;
      }
      others.push_back({of.section + ".replicas = " + text_of_mix(mix), ranked->step_ms});
      rehearsed_.erase(std::vector(ranked->settings));  // not to be ranked
    }
    if (!best.contexts.empty() && best.contexts != layout.contexts) {
      others.push_back({of.section + ".replicas = " + std::to_string(alike.replicas) +
                            ", context = " + std::to_string(alike.context),
                        alike_ms});
    }
    layout = std::move(best);
  }
  std::ranges::stable_sort(others, {}, &Alternative::step_ms);
  return layout;
}

bool JobPlanner::chooses_shares() const {
  const bool given = std::ranges::any_of(
      keys_.sections(), [&](const std::string& section) { return base_.settings.contains(section + ".share"); });
  return options_.machine.gpus != nullptr && keys_.sections().size() > 1 && !given;
}

bool JobPlanner::gives_shares() const {
  const bool given =
      std::ranges::any_of(base_.sections, [](const PlannedSection& section) { return section.config.share < 1; });
  return options_.machine.gpus != nullptr && given;
}

void JobPlanner::check_shares() const {
  for (const PlannedSection& section : base_.sections) {
    const double share = section.config.share;
    if (!(share < 1) || std::ranges::find(measured_shares, share) != measured_shares.end()) continue;
    throw JobError(section.config.name + ".share = " + number_text(share) +
                   ": plan measures the shares 0.25, 0.5 and 0.75 of a GPU; give one of them, or leave share out");
  }
}

void JobPlanner::try_shares(const std::vector<LayoutChoices>& choices, const JobLayout& centre,
                            SectionProfiler* profiler, const Progress& progress, LayoutRanking& ranking) {
  const double whole_ms = rehearsed(choices, centre)->step_ms;
  const ResolvedJob plan = resolve_(rehearsed(choices, centre)->settings);
  PlannedTimes times(prices_, plan);
  std::vector<Alternative> found;
  std::set<std::vector<std::size_t>> seen;
  for (std::size_t section = 0; section < choices.size(); ++section) {
    const std::vector<std::size_t> sharers = sharers_of(section, centre);
    const bool closed =
        std::ranges::all_of(sharers, [&](std::size_t other) { return sharers_of(other, centre) == sharers; });
    if (sharers.size() < 2 || !closed || !seen.insert(sharers).second) continue;
    PlannedTimes::Work work;
    for (const std::size_t sharer : sharers) {
      for (const SectionId stage : plan.graph.stages_of(choices[sharer].section)) {
        const PlannedTimes::Work more = times.work_of(stage);
        work.ms += more.ms;
        work.least_ms += more.least_ms;
      }
    }
    if (work.least_ms >= shared_rate * work.ms) {  // no division does more
      ranking.filled = std::max(ranking.filled, work.least_ms / work.ms);
      continue;
    }
    const bool measured = std::ranges::all_of(sharers, [&](std::size_t sharer) {
      return prices_.measure_shares(plan, choices[sharer].section, profiler, progress);
    });
    if (!measured) continue;
    const std::vector<Alternative> divided = shared(choices, centre, sharers);
    found.insert(found.end(), divided.begin(), divided.end());
  }
  std::ranges::stable_sort(found, {}, &Alternative::step_ms);
  ranking.best = ranked_layouts();
  const RankedLayout& best = ranking.best.front();
  std::ranges::copy_if(found, std::back_inserter(ranking.alternatives),
                       [&](const Alternative& other) { return other.step_ms != best.step_ms; });
  if (!best.shares_of_devices.empty()) ranking.alternatives.push_back({"share = 1", whole_ms});
}

std::vector<Alternative> JobPlanner::shared(const std::vector<LayoutChoices>& choices, const JobLayout& centre,
                                            const std::vector<std::size_t>& sharers) {
  std::vector<Alternative> found;
  for (const std::vector<double>& division : divided_shares(sharers.size())) {
    JobLayout cut = centre;
    cut.shares.resize(choices.size(), 1);
    std::string change;
    for (std::size_t at = 0; at < sharers.size(); ++at) {
      cut.shares[sharers[at]] = division[at];
      change += (change.empty() ? "" : ", ") + choices[sharers[at]].section + ".share = " + number_text(division[at]);
    }
    const RankedLayout* const ranked = rehearsed(choices, cut);
    if (ranked != nullptr) found.push_back({change, ranked->step_ms});
  }
  return found;
}

std::vector<RankedLayout> JobPlanner::ranked_layouts() const {
  std::vector<RankedLayout> ranked;
  for (const auto& [settings, layout] : rehearsed_) ranked.push_back(layout);
  std::ranges::stable_sort(ranked, [](const RankedLayout& a, const RankedLayout& b) {
    return std::tie(a.step_ms, a.bound_ms, a.settings) < std::tie(b.step_ms, b.bound_ms, b.settings);
  });
  const auto near = std::ranges::find_if(
      ranked, [&](const RankedLayout& each) { return each.step_ms > ranked.front().step_ms * (1 + close_ms); });
  std::stable_sort(ranked.begin(), near,
                   [](const RankedLayout& a, const RankedLayout& b) { return cost_of(a) < cost_of(b); });
  return ranked;
}

LayoutRanking JobPlanner::rank(SectionProfiler* profiler, const Progress& progress) {
  LayoutRanking ranking;
  std::vector<LayoutChoices> choices;
  for (const Choices& of : choices_) {
    LayoutChoices& section = choices.emplace_back();
    section.section = of.section;
    section.devices = of.devices;
    section.follows = of.follows;
    for (const Choice& choice : of.layouts) section.layouts.push_back(priced(of, choice));
    ranking.priced += section.layouts.size();
  }
  const FoundLayouts found = best_layouts(choices, searched(), std::max(options_.most, options_.least), most_bytes());
  if (found.best.empty()) fail_as_too_large(choices, most_bytes());
  ranking.compared = found.compared;
  ranking.least_bound_ms = found.least_bound_ms;
  double best_ms = std::numeric_limits<double>::infinity();
  for (const JobLayout& layout : found.best) {
    if (layout.bound_ms >= best_ms && rehearsed_.size() >= options_.least) continue;  // it cannot be faster
    const RankedLayout* const ranked = rehearsed(choices, layout);
    if (ranked != nullptr) best_ms = std::min(best_ms, ranked->step_ms);
  }
  if (rehearsed_.empty()) throw JobError("no layout of the job runs on this machine: " + first_refusal_);
  std::vector<std::string> centre;
  for (int round = 0; round < most_rounds; ++round) {
    ranking.best = ranked_layouts();
    if (ranking.best.front().settings == centre) break;
    centre = ranking.best.front().settings;
    ranking.alternatives = neighbours_of(choices, layouts_.at(centre));
  }
  JobLayout tuned = with_more_in_flight(choices, layouts_.at(centre));
  tuned = with_mixes(choices, std::move(tuned), ranking.alternatives);
  ranking.best = ranked_layouts();
  if (chooses_shares()) try_shares(choices, tuned, profiler, progress, ranking);
  // A GPU's shares may add up to more than 1.
  ranking.least_bound_ms = std::min(ranking.least_bound_ms, ranking.best.front().step_ms);
  ranking.rehearsed = rehearsed_.size();
  ranking.refused = refused_;
  ranking.first_refusal = first_refusal_;
  return ranking;
}

}  // namespace maestro
