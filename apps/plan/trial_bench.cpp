// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/trial_bench.hpp"

#include <algorithm>
#include <functional>

#include "apps/plan/cluster_places.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_kept = 4;                 // rehearsals, which are large for thousands of devices
constexpr std::size_t most_passes_to_vary = 10'000;  // of a step: micro-batches are varied while a rehearsal is short
constexpr std::int64_t least_replicas = 8;           // of a section, in a part that is rehearsed in place of all

/// Returns the memory that a device of each group needs.
std::map<std::size_t, double> bytes_of_groups(const ClusterLayouts& layouts) {
  std::map<std::size_t, double> bytes;
  for (const auto& [section, on] : layouts) bytes[on.group] += on.bytes;
  return bytes;
}

/// Returns the layouts with `times` as many micro-batches in flight of each section that awaits gradients, if the job
/// gives no number and the memory of all pools suffices; nothing if no section changes.
std::optional<ClusterLayouts> with_in_flight(const ClusterJob& job, const LayoutCatalogue& catalogue,
                                             const ClusterLayouts& layouts, std::int64_t times) {
  ClusterLayouts more = layouts;
  std::map<std::size_t, double> bytes = bytes_of_groups(layouts);
  bool some = false;
  for (auto& [section, on] : more) {
    const SectionId first = job.base.graph.stages_of(section).front();
    const GraphNode& node = job.base.graph.node(first);
    const bool awaits = node.runs_backward() && (on.layout.pipeline > 1 || job.base.graph.splits_passes(first));
    if (!awaits || job.base.settings.contains(section + ".max_in_flight")) continue;
    ClusterLayout raised = on;
    raised.keep_in_flight(times * std::max(node.max_in_flight, on.layout.stages()));
    const double needed = bytes[on.group] - on.bytes + raised.bytes;
    const auto fits = [&](const PoolShare& share) { return needed <= catalogue.most_bytes(share.pool); };
    if (raised.in_flight > most_slots || !std::ranges::all_of(on.shares(), fits)) continue;
    bytes[on.group] = needed;
    on = std::move(raised);
    some = true;
  }
  return some ? std::optional(std::move(more)) : std::nullopt;
}

/// Changes a section's layout; false: it has none.
using ChangedLayout = std::function<bool(const std::string& section, SectionLayout& layout)>;

/// Returns the layouts with changes of these sections, as far as memory suffices; nothing if no section changes.
std::optional<ClusterLayouts> with_changes(const LayoutCatalogue& catalogue, const ClusterLanes& lanes,
                                           const ClusterLayouts& layouts, const std::vector<std::string>& sections,
                                           const ChangedLayout& change) {
  std::map<std::size_t, double> bytes = bytes_of_groups(layouts);
  ClusterLayouts made = layouts;
  bool some = false;
  for (const std::string& section : sections) {
    ClusterLayout& on = made.at(section);
    SectionLayout layout = on.layout;
    if (!on.more.empty() || !change(section, layout)) continue;
    const auto other = lanes.changed(section, on, layout);
    if (!other) continue;
    const double needed = bytes[on.group] - on.bytes + other->bytes;
    if (needed > catalogue.most_bytes(on.pool)) continue;
    bytes[on.group] = needed;
    on = *other;
    some = true;
  }
  return some ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace

LayoutTrial TrialBench::trial(std::string text, ClusterLayouts layouts) const {
  const ClusterPlaces places(job_->cluster, layouts);
  return {std::move(layouts), {}, {}, places.price_per_hour(), places.all_devices(), std::move(text)};
}

std::int64_t TrialBench::parts_of(const ClusterLayouts& layouts) const {
  return job_->has_parts() ? equal_parts(layouts, job_->base.train.global_batch, least_replicas) : 1;
}

const ClusterRehearsal& TrialBench::rehearsal_of(const ClusterLayouts& layouts, const PlannedRunKeys& keys,
                                                 std::int64_t parts) {
  std::vector<std::string> settings = job_->rehearsed_settings(part_of(layouts, parts), keys);
  if (parts > 1) settings.push_back("train.global_batch=" + std::to_string(job_->base.train.global_batch / parts));
  const auto known = std::ranges::find(kept_, settings, &Kept::settings);
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return *kept_.front().rehearsal;
  }
  if (kept_.size() == most_kept) kept_.pop_back();
  std::optional<ClusterPart> part;
  if (parts > 1) part = {job_->resolve(settings), part_of(layouts, parts), part_of(job_->units, parts)};
  auto made = std::make_unique<ClusterRehearsal>(
      job_->resolve(parts > 1 ? job_->rehearsed_settings(layouts, keys) : settings), layouts, job_->cluster,
      job_->units, *catalogue_, job_->options.hop_ms, std::move(part));
  kept_.push_front({std::move(settings), std::move(made)});
  return *kept_.front().rehearsal;
}

PlayedLayouts TrialBench::play(const ClusterLayouts& layouts, const PlannedRunKeys& keys) {
  ++rehearsed_;
  return rehearsal_of(layouts, keys, parts_of(layouts)).play();
}

double TrialBench::changed_ms(const ClusterLayouts& layouts, const PlannedRunKeys& keys,
                              const RehearsalChange& change) {
  ++rehearsed_;
  return rehearsal_of(layouts, keys, parts_of(layouts)).play(change).step_ms;
}

void TrialBench::play_whole(LayoutTrial& trial) {
  if (parts_of(trial.layouts) == 1) return;
  ++rehearsed_;
  kept_.clear();  // rehearsals of a large cluster need much memory
  trial.played = rehearsal_of(trial.layouts, trial.keys, 1).play();
}

bool TrialBench::at_bound(const LayoutTrial& trial) const {
  return trial.played.step_ms <= bound_of(trial.layouts) * (1 + job_->options.stall);
}

bool TrialBench::take(LayoutTrial& trial, ClusterLayouts layouts, const PlannedRunKeys& keys, double most_ms) {
  PlayedLayouts played = play(layouts, keys);
  if (played.step_ms > most_ms) return false;
  trial.layouts = std::move(layouts);
  trial.keys = keys;
  trial.played = std::move(played);
  return true;
}

void TrialBench::play_in_flight(LayoutTrial& trial) {
  trial.played = play(trial.layouts, trial.keys);
  const ClusterLayouts before = trial.layouts;
  for (const std::int64_t times : {2, 4}) {
    if (at_bound(trial)) break;
    auto more = with_in_flight(*job_, *catalogue_, before, times);
    if (!more || !take(trial, *std::move(more), trial.keys, trial.played.step_ms * (1 - least_plan_gain))) break;
  }
}

void TrialBench::vary_batches(LayoutTrial& trial, const ClusterLanes& lanes) {
  const auto try_batches = [&](const std::vector<std::string>& sections, double times) {
    if (at_bound(trial)) return;
    const auto change = [&](const std::string& section, SectionLayout& layout) {
      layout.micro_batch = static_cast<std::int64_t>(static_cast<double>(layout.micro_batch) * times);
      return layout.micro_batch > 0 && job_->keys.of(section).contains("micro_batch");
    };
    auto made = with_changes(*catalogue_, lanes, trial.layouts, sections, change);
    if (made) take(trial, *std::move(made), trial.keys, trial.played.step_ms * (1 - least_plan_gain));
  };
  if (passes(trial.layouts, trial.keys) > most_passes_to_vary) return;
  for (const double times : {2.0, 0.5}) {
    try_batches(job_->keys.sections(), times);
    for (const std::string& section : job_->keys.sections()) try_batches({section}, times);
  }
}

void TrialBench::vary_chunks(LayoutTrial& trial, const ClusterLanes& lanes) {
  if (passes(trial.layouts, trial.keys) > most_passes_to_vary) return;
  for (const std::string& section : job_->keys.sections()) {
    const auto doubled = [&](const std::string& of, SectionLayout& layout) {
      layout.chunks *= 2;
      return layout.pipeline > 1 && layout.chunks <= most_planned_chunks && job_->keys.of(of).contains("chunks") &&
             catalogue_->price_more(of, layout, job_->resolve, job_->samples());
    };
    while (auto made = with_changes(*catalogue_, lanes, trial.layouts, {section}, doubled)) {
      if (!take(trial, *std::move(made), trial.keys, trial.played.step_ms * (1 - least_plan_gain))) break;
    }
  }
}

void TrialBench::tune(LayoutTrial& trial) {
  if (at_bound(trial)) return;
  const auto try_keys = [&](const PlannedRunKeys& keys, double gain) {
    return take(trial, trial.layouts, keys, trial.played.step_ms * (1 - gain));
  };
  const PlannedRunKeys given = trial.keys;
  std::vector<PlannedRunKeys> others{{true, given.slots}};
  if (job_->options.slots) others.insert(others.end(), {{true, most_slots}, {false, most_slots}});
  for (const PlannedRunKeys& other : others) {
    if (other != given) try_keys(other, least_plan_gain);
  }
  for (std::int64_t fewer = trial.keys.slots / 2; trial.keys != given && fewer > job_->base.transport.slots;
       fewer /= 2) {
    if (!try_keys({trial.keys.speeds, fewer}, -least_plan_gain)) break;
  }
}

}  // namespace maestro
