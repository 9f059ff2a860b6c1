// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/job_shares.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

/// Sections with shares of a GPU have its memory and its power in common: beside each other they do this part of the
/// work that the best rates of single calls allow. Measured on an H200 (benchmarks/README.md).
constexpr double together = 0.73;

/// Returns whether a job keeps several cores, or GPUs, busy; `cores`: SearchedDevices.
bool uses_several(const JobPlan& plan, int cores) {
  std::set<int> used;
  for (const ReplicaPlacement& place : plan.places) {
    if (plan.graph.node(place.section).role == Role::source) continue;
    for (const DeviceId& device : place.devices) used.insert(SearchedDevices{0, cores}.core_of(device.index));
  }
  return used.size() > 1;
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

}  // namespace

JobPlanner::Times::Times(JobPlanner& planner, const JobPlan& plan)
    : planner_(&planner),
      plan_(&plan),
      cores_(planner.options_.machine.cores),
      on_gpus_(planner.options_.machine.gpus != nullptr),
      dry_(planner.dry_sections(plan)),
      whole_(plan, dry_, uses_several(plan, cores_) ? planner.prices_->busy : planner.prices_->alone,
             planner.options_.hop_ms, uses_several(plan, cores_) ? planner.busy_ : planner.alone_) {
  for (std::size_t part = 0; part < measured_shares.size(); ++part) {
    parts_.try_emplace(measured_shares[part], plan, dry_, planner.prices_->parts[part], planner.options_.hop_ms,
                       planner.parts_[part]);
  }
}

std::shared_ptr<DrySections> JobPlanner::dry_sections(const JobPlan& plan) {
  return std::make_shared<DrySections>(plan, units_.front().samples, options_.machine.gpus != nullptr, &values_);
}

PricedTimes& JobPlanner::Times::of(SectionId section) {
  const auto found = parts_.find(plan_->sections[section.value()].config.share);
  return found == parts_.end() ? whole_ : found->second;
}

JobPlanner::Times::Work JobPlanner::Times::work_of(SectionId section) {
  if (!planner_->least_prices_) planner_->least_prices_.emplace(planner_->prices_->alone);
  PricedTimes least_times(*plan_, dry_, *planner_->least_prices_, planner_->options_.hop_ms, planner_->least_);
  Work work;
  for (const MicroBatchPlan& batch : batches_of(*plan_, section, planner_->units_.front().samples)) {
    const PassCost least = least_times.pass(batch);
    const PassCost priced = of(section).pass(batch);
    work.least_ms += least.forward + least.backward;
    work.ms += priced.forward + priced.backward;
  }
  return work;
}

JobTimes JobPlanner::Times::times() {
  JobTimes made = whole_.times();
  made.cores = cores_;
  if (on_gpus_) made.sharing = DeviceSharing::streams;
  made.pass = [this](const MicroBatchPlan& batch) { return of(batch.section).pass(batch); };
  if (on_gpus_) {
    made.demand = [this](SectionId section) {
      const Work alone = work_of(section);
      return alone.ms > 0 ? std::min(1.0, alone.least_ms / alone.ms / together) : 1;
    };
  }
  made.action = [this](SectionId section, StepAction action) { return of(section).action(section, action); };
  return made;
}

PriceSources JobPlanner::Times::sources() const {
  PriceSources sum = whole_.sources();
  for (const auto& [share, times] : parts_) sum += times.sources();
  return sum;
}

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
  const JobPlan plan = resolve_(rehearsed(choices, centre)->settings);
  Times times(*this, plan);
  std::vector<Alternative> found;
  std::set<std::vector<std::size_t>> seen;
  for (std::size_t section = 0; section < choices.size(); ++section) {
    const std::vector<std::size_t> sharers = sharers_of(section, centre);
    const bool closed =
        std::ranges::all_of(sharers, [&](std::size_t other) { return sharers_of(other, centre) == sharers; });
    if (sharers.size() < 2 || !closed || !seen.insert(sharers).second) continue;
    Times::Work work;
    for (const std::size_t sharer : sharers) {
      for (const SectionId stage : plan.graph.stages_of(choices[sharer].section)) {
        const Times::Work more = times.work_of(stage);
        work.ms += more.ms;
        work.least_ms += more.least_ms;
      }
    }
    if (work.least_ms >= together * work.ms) {  // no division does more
      ranking.filled = std::max(ranking.filled, work.least_ms / work.ms);
      continue;
    }
    const bool measured = std::ranges::all_of(
        sharers, [&](std::size_t sharer) { return measure_shares(plan, choices[sharer].section, profiler, progress); });
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

}  // namespace maestro
