// SPDX-License-Identifier: Apache-2.0
// The coordinator after the loss of a process (CR-6): replicas of the trained sections that survive write their state.
#include <algorithm>

#include "actors/run/coordinator.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds standing_limit(5);
}  // namespace

caf::result<Rescued> Coordinator::rescue(const Rescue& loss) {
  const bool going_on = began_ && !finished_ && !schedule_.stopped() && !rescuing_;
  if (!going_on || !options_.schedule.keeps_state) return Rescued{};
  const std::vector<caf::actor> survivors = trained_survivors(loss.lost);
  if (survivors.empty()) return Rescued{};
  rescuing_.emplace();
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

void Coordinator::write_rescued() {
  const StepId step(options_.record->last_step);
  const auto is_earlier = [step](const auto& entry) { return entry.first.first <= step.value(); };
  std::map<SectionId, caf::actor> writers;
  for (const auto& [still, replica] : rescuing_->standing) {
    if (still.whole && still.step == step) writers.emplace(still.section, replica);
  }
  const bool complete = writers.size() == trained_sections() && step.value() >= options_.schedule.first_step;
  const bool ended = !schedule_.owes(step) && std::ranges::none_of(open_, is_earlier);
  if (!complete || !ended || newest_ == step) return rescued();
  const RunUnit unit{options_.shadows != nullptr ? RunUnit::Kind::shadow : RunUnit::Kind::checkpoint, step};
  const Result<std::filesystem::path> staging = store_of(unit.kind).begin(step, options_.origin.run.id);
  if (!staging) return rescued();
  rescuing_->written = step;
  Open& open = open_[{step.value(), unit.kind}];
  open.unit = unit;
  open.staging = staging->string();
  const bool shadow = unit.kind == RunUnit::Kind::shadow;
  const StepBoundary mark{StepBoundary::Kind::snapshot, step, Pass::train, open.staging, true, shadow};
  for (const auto& [section, replica] : writers) send_to(this, replica, BoundaryOrder{mark});
}

void Coordinator::rescued() {
  rescuing_->answer.deliver(Rescued{});
}

}  // namespace maestro
