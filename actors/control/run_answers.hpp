// SPDX-License-Identifier: Apache-2.0
// Translates what the run knows of itself into the structs of control.thrift. Pure, but for the lower bound, which it
// works out.
#pragma once

#include <vector>

#include "actors/messages/messages.hpp"
#include "actors/plan/job_plan.hpp"
#include "actors/run/control_messages.hpp"

namespace maestro {

// Generated, see control.thrift.
namespace control {
class Metrics;
class Plan;
class Status;
}  // namespace control

/// `answers` of replicas, in any order; those that have none are shown so.
[[nodiscard]] control::Status status_answer(const JobPlan& job, const RunStatus& run,
                                            const std::vector<WaitingFor>& answers);
[[nodiscard]] control::Plan plan_answer(const JobPlan& job, const RunStatus& run);
[[nodiscard]] control::Metrics metrics_answer(const MetricsRows& rows);

}  // namespace maestro
