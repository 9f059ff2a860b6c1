// SPDX-License-Identifier: Apache-2.0
// Describes what a replica does or waits for, for the supervisor, the control service and the trace. Pure.
#pragma once

#include "actors/replica/replica_ranks.hpp"
#include "runtime/schedule/step_end.hpp"

namespace maestro {

/// Describes the running pass, or its wait for its turn.
[[nodiscard]] WaitingFor running_pass(const ReplicaSpec& spec, const ReplicaRanks& ranks, const ReplicaLane::Work& work,
                                      StepId step);
/// Describes the running action of a boundary, or the replicas that it waits for.
[[nodiscard]] WaitingFor running_action(const ReplicaSpec& spec, StepAction action, StepId step);
/// Returns what the next pass waits for; WaitKind::work without a next pass.
[[nodiscard]] WaitingFor idle_wait(const ReplicaSpec& spec, const ReplicaLane& lane, const ReplicaRanks& ranks,
                                   StepId step);
/// Returns the name of the node that the replica waits for, or else of the kind of wait.
[[nodiscard]] std::string lane_wait(const WaitingFor& waiting, const SectionGraph& graph);

}  // namespace maestro
