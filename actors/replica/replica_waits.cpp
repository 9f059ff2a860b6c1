// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_waits.hpp"

#include <algorithm>

#include "actors/messages/wait_text.hpp"

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

WaitingFor of_replica(const ReplicaSpec& spec, StepId step) {
  WaitingFor answer;
  answer.section = answer.peer = spec.section;
  answer.replica = spec.replica;
  answer.step = step;
  return answer;
}

}  // namespace

WaitingFor running_pass(const ReplicaSpec& spec, const ReplicaRanks& ranks, const ReplicaLane::Work& work,
                        StepId step) {
  WaitingFor answer = of_replica(spec, step);
  if (ranks.queued()) {
    answer.doing = pass_name(work.kind);
  } else {
    answer.kind = WaitKind::turn;
  }
  answer.micro_batch = work.batch->index;
  return answer;
}

WaitingFor running_action(const ReplicaSpec& spec, StepAction action, StepId step) {
  WaitingFor answer = of_replica(spec, step);
  const auto on_other_replicas = [&](WaitKind kind) {
    answer.kind = kind;
    for (std::uint32_t other = 0; other < spec.graph->node(spec.section).replicas; ++other) {
      if (ReplicaIndex(other) != spec.replica) answer.peers.emplace_back(other);
    }
    return answer;
  };
  switch (action) {
    case StepAction::await_total:
      answer.kind = WaitKind::norm;
      return answer;
    case StepAction::exchange_tie:
    case StepAction::sum:
    case StepAction::sum_to_shards:
    case StepAction::merge_rows:
      return on_other_replicas(WaitKind::reduction);
    case StepAction::gather_values:
    case StepAction::gather_rows:
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

WaitingFor idle_wait(const ReplicaSpec& spec, const ReplicaLane& lane, const ReplicaRanks& ranks, StepId step) {
  WaitingFor answer = of_replica(spec, step);
  answer.kind = WaitKind::work;
  const MicroBatchPlan* batch = lane.waiting_batch();
  if (batch == nullptr) return answer;
  answer.step = batch->step;
  answer.micro_batch = batch->index;
  answer.sample = batch->samples.front().id.value();
  if (const ArrivalPlan* missing = lane.missing_arrival()) {
    answer.kind = missing->channel.gradient() ? WaitKind::gradient : WaitKind::input;
    answer.port = spec.graph->receiver_port(missing->channel);
    answer.peer = spec.graph->sender(missing->channel);
    answer.peers = senders(*missing);
    return answer;
  }
  for (const auto& rank : ranks) {
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

std::string lane_wait(const WaitingFor& waiting, const SectionGraph& graph) {
  const bool of_peer =
      waiting.kind == WaitKind::input || waiting.kind == WaitKind::gradient || waiting.kind == WaitKind::credit;
  return of_peer ? graph.node(waiting.peer).name : name_of(waiting.kind);
}

}  // namespace maestro
