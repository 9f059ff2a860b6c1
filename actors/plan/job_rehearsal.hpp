// SPDX-License-Identifier: Apache-2.0
// A resolved job in virtual time, with the times of a traced run. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "runtime/estimate/rehearsal.hpp"
#include "runtime/estimate/traced_times.hpp"

namespace maestro {

/// The differences of a rehearsal from its trace.
struct RehearsalChange {
  std::map<std::string, double> faster;  ///< sections: how many times as fast; infinity: its passes take no time
  double latency_ms = 0;                 ///< more for every write and credit between processes
};

/// Plans the units of a traced run for a job, in order, with the costs that its planner would use: where plans follow
/// measured times, those of `times`; null: none.
[[nodiscard]] Result<std::vector<StepPlan>> plans_of(const JobPlan& plan, const std::vector<TracedUnit>& units,
                                                     const TracedTimes* times);

/// Returns the job for TracedTimes. `plan` outlives it.
[[nodiscard]] TimedJob timed_job(const JobPlan& plan);

/// Rehearses the units of a traced run; `plans`: of plans_of(). All outlive the call.
[[nodiscard]] Result<Rehearsed> rehearse(const JobPlan& plan, const TracedRun& run, const std::vector<StepPlan>& plans,
                                         const TracedTimes& times, const RehearsalChange& change);

}  // namespace maestro
