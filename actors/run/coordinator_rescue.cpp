// SPDX-License-Identifier: Apache-2.0
// The coordinator after the loss of a process (CR-6): replicas of the trained sections that survive write their state.
#include <algorithm>

#include "actors/run/coordinator.hpp"
#include "actors/run/rescue_point.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds standing_limit(5);
}  // namespace

caf::result<Rescued> Coordinator::rescue(const Rescue& loss) {
  const bool going_on = began_ && !finished_ && !schedule_.stopped() && !rescuing_;
  if (!going_on || !options_.schedule.keeps_state) return Rescued{};
  const std::vector<caf::actor> survivors = trained_survivors(loss.lost);
  if (survivors.empty()) return Rescued{};
  rescuing_ = decltype(rescuing_)::value_type{};  // clang 14 has no emplace() of a nested class
  rescuing_->lost = loss.lost;
  rescuing_->answer = make_response_promise<Rescued>();
  stand_still(survivors);
  return rescuing_->answer;
}

/// Returns the replicas of trained sections on other processes; none if a section has no such replica.
std::vector<caf::actor> Coordinator::trained_survivors(ProcessId lost) const {
  std::vector<caf::actor> survivors;
  std::set<SectionId> sections;
  for (const ReplicaAddress& replica : directory_->replicas()) {
    if (replica.process == lost || !options_.graph->node(replica.section).trained()) continue;
    survivors.push_back(replica.actor);
    sections.insert(replica.section);
  }
  if (sections.size() < trained_sections()) survivors.clear();
  return survivors;
}

void Coordinator::stand_still(const std::vector<caf::actor>& replicas) {
  rescuing_->due = replicas.size();
  const auto answered = [this] {
    if (--rescuing_->due == 0) write_rescued();
  };
  for (const caf::actor& replica : replicas) {
    request(replica, standing_limit, StandStill{})
        .then(
            [this, replica, answered](const StandsStill& still) {
              rescuing_->standing.emplace_back(still, replica);
              answered();
            },
            [answered](const caf::error&) { answered(); });
  }
}

void Coordinator::end_steps_of(ProcessId lost) {
  for (auto next = open_.begin(); next != open_.end() && next->first.second == RunUnit::Kind::train;) {
    const Open& open = (next++)->second;  // the last report of the step removes it
    std::set<SectionId> awaited;          // sections of which a survivor has not reported
    std::vector<StepDone> ends;
    for (const ReplicaAddress& at : directory_->replicas()) {
      if (at.process != lost && !open.replicas_done.contains({at.section, at.replica})) awaited.insert(at.section);
    }
    for (const ReplicaAddress& at : directory_->replicas()) {
      const bool ended = !awaited.contains(at.section) && open.watch.complete(at.section);
      if (at.process != lost || !ended) continue;
      const auto found = open.norm_and_lr.find(at.section);
      const auto [norm, lr] = found == open.norm_and_lr.end() ? std::pair(0.0, 0.0) : found->second;
      ends.push_back({at.section, at.replica, open.unit.step, Pass::train, norm, lr});
    }
    for (const StepDone& end : ends) step_done(end);
  }
}

bool Coordinator::is_recorded(const Open& open, SectionId section) const {
  const auto earlier = options_.trained_until.find(section);
  if (earlier != options_.trained_until.end() && open.unit.step <= earlier->second) return true;
  const auto reports = open.section_done.find(section);
  return reports != open.section_done.end() && reports->second == replicas_.at(section).size();
}

bool Coordinator::may_stay_ahead(StepId step, const std::map<SectionId, StepId>& ahead) const {
  if (ahead.empty()) return true;
  StepId last = step;
  for (const auto& [section, until] : ahead) last = std::max(last, until);
  for (const auto& [key, open] : open_) {
    if (key.first <= step.value() || key.first > last.value()) continue;
    if (key.second != RunUnit::Kind::train) return false;
    for (const auto& [section, until] : ahead) {
      if (open.unit.step <= until && !is_recorded(open, section)) return false;
    }
  }
  const auto is_validation = [](const RunUnit& unit) { return unit.kind == RunUnit::Kind::validate; };
  return schedule_.owed(last).size() == schedule_.owed(step).size() && std::ranges::none_of(owed(step), is_validation);
}

std::vector<RunUnit> Coordinator::owed(StepId step) const {
  std::set<RunUnit::Kind> kinds;  // in the order of RS-1
  for (const RunUnit& unit : schedule_.owed(step)) kinds.insert(unit.kind);
  for (const auto& [key, open] : open_) {
    if (key.first <= step.value()) kinds.insert(key.second);
  }
  kinds.erase(RunUnit::Kind::shadow);
  std::vector<RunUnit> units;
  for (const RunUnit::Kind kind : kinds) units.push_back({kind, step});
  return units;
}

void Coordinator::write_rescued() {
  end_steps_of(rescuing_->lost);
  const StepId step(options_.record->last_step);
  std::vector<StandsStill> standing;
  for (const auto& [still, replica] : rescuing_->standing) standing.push_back(still);
  const std::optional<RescuePoint> point = rescue_point(*options_.graph, options_.joined_norms, step, standing);
  const bool has_more = step.value() >= options_.schedule.first_step && newest_ != step;
  if (!point || !has_more || !may_stay_ahead(step, point->ahead)) return rescued();
  const RunUnit unit{options_.shadows != nullptr ? RunUnit::Kind::shadow : RunUnit::Kind::checkpoint, step};
  const Key key{step.value(), unit.kind};
  if (open_.contains(key)) return rescued();  // parts of it may be written already
  const Result<std::filesystem::path> staging = store_of(unit.kind).begin(step, options_.origin.run.id);
  if (!staging) return rescued();
  rescuing_->made = key;
  rescuing_->owed = owed(step);
  Open& open = open_[key];
  open.unit = unit;
  open.staging = staging->string();
  open.ahead = point->ahead;
  const bool shadow = unit.kind == RunUnit::Kind::shadow;
  const StepBoundary mark{StepBoundary::Kind::snapshot, step, Pass::train, open.staging, true, shadow};
  for (const auto& [section, at] : point->writers) send_to(this, rescuing_->standing[at].second, BoundaryOrder{mark});
}

void Coordinator::rescued() {
  rescuing_->written = rescuing_->made.has_value();
  if (rescuing_->written) options_.record->owed = rescuing_->owed;
  rescuing_->answer.deliver(Rescued{});
}

}  // namespace maestro
