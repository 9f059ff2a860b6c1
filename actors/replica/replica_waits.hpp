// SPDX-License-Identifier: Apache-2.0
// What a section replica does or waits for, by its state: for the supervisor, the control service and the trace. Pure.
#pragma once

#include "actors/replica/replica_ranks.hpp"
#include "runtime/schedule/step_end.hpp"

namespace maestro {

/// Returns the pass that runs.
[[nodiscard]] WaitingFor running_pass(const ReplicaSpec& spec, const ReplicaLane::Work& work, StepId step);
/// Returns what an action of a boundary does, or the replicas that it waits for.
[[nodiscard]] WaitingFor running_action(const ReplicaSpec& spec, StepAction action, StepId step);
/// Returns what the next pass misses; WaitKind::work if there is none.
[[nodiscard]] WaitingFor idle_wait(const ReplicaSpec& spec, const ReplicaLane& lane, const ReplicaRanks& ranks,
                                   StepId step);
/// Returns the name of the node that the replica waits for, else what is missing.
[[nodiscard]] std::string lane_wait(const WaitingFor& waiting, const SectionGraph& graph);

}  // namespace maestro
