// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/loss_rescue.hpp"

#include <algorithm>

#include "actors/run/coordinator/rescue_point.hpp"

namespace maestro {

namespace {

/// Returns the units left to do after `step`, as units of this step.
std::vector<RunUnit> owed_after(StepId step, const OpenUnits& open, const RunSchedule& schedule) {
  std::set<RunUnit::Kind> kinds;  // in the order of RS-1
  for (const RunUnit& unit : schedule.owed(step)) kinds.insert(unit.kind);
  for (const auto& [key, unit] : open) {
    if (key.first <= step.value()) kinds.insert(key.second);
  }
  kinds.erase(RunUnit::Kind::shadow);
  std::vector<RunUnit> units;
  for (const RunUnit::Kind kind : kinds) units.push_back({kind, step});
  return units;
}

}  // namespace

std::vector<caf::actor> trained_survivors(const SectionGraph& graph, const Directory& directory, ProcessId lost) {
  std::vector<caf::actor> survivors;
  std::set<SectionId> sections;
  for (const ReplicaAddress& replica : directory.replicas()) {
    if (replica.process == lost || !graph.node(replica.section).trained()) continue;
    survivors.push_back(replica.actor);
    sections.insert(replica.section);
  }
  const auto trained = static_cast<std::size_t>(std::ranges::count_if(graph.nodes(), &GraphNode::trained));
  if (sections.size() < trained) survivors.clear();
  return survivors;
}

bool LossRescue::add_answer(const StandsStill& still, const caf::actor& replica) {
  standing_.emplace_back(still, replica);
  return --due_ == 0;
}

std::vector<StepDone> LossRescue::missing_ends(const OpenUnits& open, const Directory& directory) const {
  std::vector<StepDone> ends;
  for (const auto& [key, unit] : open) {
    if (key.second != RunUnit::Kind::train) break;
    std::set<SectionId> awaited;  // sections with a surviving replica that has not reported
    for (const ReplicaAddress& at : directory.replicas()) {
      if (at.process != lost_ && !unit.replicas_done.contains({at.section, at.replica})) awaited.insert(at.section);
    }
    for (const ReplicaAddress& at : directory.replicas()) {
      const bool ended = !awaited.contains(at.section) && unit.watch.complete(at.section);
      if (at.process != lost_ || !ended) continue;
      const auto found = unit.norm_and_lr.find(at.section);
      const auto [norm, lr] = found == unit.norm_and_lr.end() ? std::pair(0.0, 0.0) : found->second;
      ends.push_back({at.section, at.replica, unit.unit.step, Pass::train, norm, lr});
    }
  }
  return ends;
}

bool LossRescue::is_recorded(const OpenUnit& open, SectionId section) const {
  const auto earlier = options_->trained_until.find(section);
  if (earlier != options_->trained_until.end() && open.unit.step <= earlier->second) return true;
  return open.sections_done.contains(section);
}

bool LossRescue::may_stay_ahead(const RescueCheckpoint& checkpoint, const OpenUnits& open,
                                const RunSchedule& schedule) const {
  if (checkpoint.ahead.empty()) return true;
  const StepId step = checkpoint.unit.step;
  StepId last = step;
  for (const auto& [section, until] : checkpoint.ahead) last = std::max(last, until);
  for (const auto& [key, unit] : open) {
    if (key.first <= step.value() || key.first > last.value()) continue;
    if (key.second != RunUnit::Kind::train) return false;
    for (const auto& [section, until] : checkpoint.ahead) {
      if (unit.unit.step <= until && !is_recorded(unit, section)) return false;
    }
  }
  const auto is_validation = [](const RunUnit& unit) { return unit.kind == RunUnit::Kind::validate; };
  return schedule.owed(last).size() == schedule.owed(step).size() &&
         std::ranges::none_of(checkpoint.owed, is_validation);
}

std::optional<RescueCheckpoint> LossRescue::checkpoint(const OpenUnits& open, const RunSchedule& schedule,
                                                       std::optional<StepId> newest) const {
  const StepId step(options_->record->last_step);
  std::vector<StandsStill> standing;
  for (const auto& [still, replica] : standing_) standing.push_back(still);
  const std::optional<RescuePoint> point = rescue_point(*options_->graph, options_->joined_norms, step, standing);
  const bool has_more = step.value() >= options_->schedule.first_step && newest != step;
  if (!point || !has_more) return std::nullopt;
  RescueCheckpoint checkpoint;
  checkpoint.unit = checkpoint_unit(step, options_->shadows != nullptr);
  checkpoint.ahead = point->ahead;
  checkpoint.owed = owed_after(step, open, schedule);
  for (const auto& [section, at] : point->writers) checkpoint.writers.push_back(standing_[at].second);
  const bool begun = open.contains(key_of(checkpoint.unit));  // some parts may be written already
  if (begun || !may_stay_ahead(checkpoint, open, schedule)) return std::nullopt;
  return checkpoint;
}

void LossRescue::begin(const RescueCheckpoint& checkpoint) {
  made_ = key_of(checkpoint.unit);
  owed_ = checkpoint.owed;
}

void LossRescue::end() {
  written_ = made_.has_value();
  if (written_) options_->record->owed = owed_;
  request_.deliver(Rescued{});
}

}  // namespace maestro
