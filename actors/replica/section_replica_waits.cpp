// SPDX-License-Identifier: Apache-2.0
// The state of a section replica, for the supervisor, the control service and the trace: its work, or its wait.
#include <algorithm>

#include "actors/messages/wait_text.hpp"
#include "actors/replica/section_replica.hpp"

namespace maestro {

namespace {

std::string pass_name(ReplicaLane::Kind kind) {
  switch (kind) {
    case ReplicaLane::Kind::forward:
      return "forward";
    case ReplicaLane::Kind::forward_backward:
      return "forward_backward";
    case ReplicaLane::Kind::backward:
      return "backward";
    case ReplicaLane::Kind::mark:
      break;
  }
  return "step";
}

std::vector<ReplicaIndex> senders(const ArrivalPlan& arrival) {
  std::vector<ReplicaIndex> found;
  for (const ArrivalPiece& piece : arrival.pieces) {
    if (std::ranges::find(found, piece.sender) == found.end()) found.push_back(piece.sender);
  }
  return found;
}

/// Returns the node that the replica waits for, else what is missing.
std::string lane_wait(const WaitingFor& waiting, const SectionGraph& graph) {
  const bool of_peer =
      waiting.kind == WaitKind::input || waiting.kind == WaitKind::gradient || waiting.kind == WaitKind::credit;
  return of_peer ? graph.node(waiting.peer).name : name_of(waiting.kind);
}

}  // namespace

void SectionReplica::note_action() {
  const WaitingFor waiting = waits_for();
  const Clock::time_point now = Clock::now();
  waiting.kind == WaitKind::nothing ? clock_.ends_step(now) : clock_.waits(name_of(waiting.kind), now);
}

void SectionReplica::idle() {
  const WaitingFor waiting = waits_for();
  const Clock::time_point now = Clock::now();
  clock_.waits(lane_wait(waiting, *spec_.graph), now);
  if (!ranks_.front()->trace().on() || idle_since_ || lane_.idle()) return;
  idle_since_ = now;
  idle_reason_ = wait_text(waiting, *spec_.graph);
}

void SectionReplica::note_wait() {
  if (!idle_since_) return;
  ranks_.front()->trace().waited(*idle_since_, idle_reason_);
  idle_since_.reset();
}

WaitingFor SectionReplica::status() const {
  WaitingFor answer = waits_for();
  answer.events = events_;
  const bool idle = answer.kind == WaitKind::work;
  if (idle && spec_.snapshots != nullptr && spec_.snapshots->busy()) {
    answer.kind = WaitKind::nothing;
    answer.doing = "checkpoint";
  }
  return answer;
}

WaitingFor SectionReplica::waits_for() const {
  WaitingFor answer;
  answer.section = answer.peer = spec_.section;
  answer.replica = spec_.replica;
  answer.step = step_;
  const auto on_other_replicas = [&](WaitKind kind) {
    answer.kind = kind;
    for (std::uint32_t other = 0; other < node().replicas; ++other) {
      if (ReplicaIndex(other) != spec_.replica) answer.peers.emplace_back(other);
    }
    return answer;
  };
  if (!busy_) return idle_waits_for();
  if (work_.kind != ReplicaLane::Kind::mark) {
    answer.doing = pass_name(work_.kind);
    answer.micro_batch = work_.batch->index;
    return answer;
  }
  switch (step_end_.current().value_or(StepAction::report)) {
    case StepAction::await_total:
      answer.kind = WaitKind::norm;
      return answer;
    case StepAction::exchange_tie:
    case StepAction::sum:
    case StepAction::sum_to_shards:
      return on_other_replicas(WaitKind::reduction);
    case StepAction::gather_values:
      return on_other_replicas(WaitKind::parameters);
    case StepAction::gather_first_moments:
    case StepAction::gather_second_moments:
      return on_other_replicas(WaitKind::moments);
    case StepAction::copy_first_moments:
    case StepAction::copy_second_moments:
    case StepAction::write:
      answer.doing = "checkpoint";
      return answer;
    default:
      answer.doing = "step";
      return answer;
  }
}

WaitingFor SectionReplica::idle_waits_for() const {
  WaitingFor answer;
  answer.section = answer.peer = spec_.section;
  answer.replica = spec_.replica;
  answer.kind = WaitKind::work;
  answer.step = step_;
  const MicroBatchPlan* batch = lane_.waiting_batch();
  if (batch == nullptr) return answer;
  answer.step = batch->step;
  answer.micro_batch = batch->index;
  answer.sample = batch->samples.front().id.value();
  if (const ArrivalPlan* missing = lane_.missing_arrival()) {
    answer.kind = missing->channel.gradient() ? WaitKind::gradient : WaitKind::input;
    answer.port = spec_.graph->receiver_port(missing->channel);
    answer.peer = spec_.graph->sender(missing->channel);
    answer.peers = senders(*missing);
    return answer;
  }
  for (const auto& rank : ranks_) {
    const auto waiting = rank->ports().waiting_send();
    if (!waiting) continue;
    answer.kind = WaitKind::credit;
    answer.step = waiting->step;
    answer.peer = waiting->receiver;
    answer.peers = {waiting->replica};
    return answer;
  }
  answer.kind = batch->phased ? WaitKind::phase : WaitKind::buffer;
  return answer;
}

}  // namespace maestro
