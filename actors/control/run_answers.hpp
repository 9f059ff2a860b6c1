// SPDX-License-Identifier: Apache-2.0
// Translates the run's state into the structs of control.thrift. Pure; plan_answer() also computes the lower bound.
#pragma once

#include <vector>

#include "actors/job/resolved_job.hpp"
#include "actors/messages/messages.hpp"
#include "actors/run/coordinator/control_messages.hpp"

namespace maestro {

// Generated, see control.thrift.
namespace control {
class Metrics;
class Plan;
class Status;
}  // namespace control

/// Returns the status. `answers`: answers of replicas in any order; a replica without one is shown as `no answer`.
[[nodiscard]] control::Status status_answer(const ResolvedJob& job, const RunStatus& run,
                                            const std::vector<WaitingFor>& answers);
[[nodiscard]] control::Plan plan_answer(const ResolvedJob& job, const RunStatus& run);
[[nodiscard]] control::Metrics metrics_answer(const MetricsRows& rows);

}  // namespace maestro
