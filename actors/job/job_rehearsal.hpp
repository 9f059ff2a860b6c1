// SPDX-License-Identifier: Apache-2.0
// A resolved job in virtual time, with the times of a traced run or of priced calls. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/rehearsal/rehearsal.hpp"
#include "runtime/rehearsal/rehearsed_shares.hpp"
#include "runtime/rehearsal/traced_times.hpp"

namespace maestro {

/// RehearsalTimes::hop_ms, as traces of runs on processors have it.
inline constexpr double usual_hop_ms = 0.03;

/// How sections run on a device, other than a processor, that they share.
enum class DeviceSharing : std::uint8_t {
  turns,     ///< a pass at a time, as on emulated devices
  streams,   ///< beside each other, as streams of a GPU: in equal parts, and frozen sections while no other has work;
             ///< those with a share by their demands
  measured,  ///< on a GPU: as the times have it already
};

/// The times of a job's work, in milliseconds.
struct JobTimes {
  std::function<PassCost(const MicroBatchPlan& batch)> pass;
  /// Of an exchange, from the arrival of its last replica on.
  std::function<double(SectionId section, StepAction action)> action;
  /// A write of rows between two processes.
  std::function<double(SectionId from, SectionId to, std::int64_t rows)> write;
  double hop_ms = 0;  ///< RehearsalTimes::hop_ms
  /// Of each host, over which its processors are laid (cpu:K on core K modulo cores): passes are as long as they are
  /// with a core to themselves. 0: each has a core, or as in measured runs the times have it already.
  std::int64_t cores = 0;
  DeviceSharing sharing = DeviceSharing::turns;
  /// Of a section with a share of a GPU that runs as streams do: its work's demand on the whole (CO-3); empty: none.
  std::function<double(SectionId section)> demand = {};
  bool apart = false;  ///< no two sections have a process in common, so that every tensor is written
};
/// Returns whether devices of the job share a core; `cores`: of a host (JobTimes).
[[nodiscard]] bool shares_cores(const ResolvedJob& plan, std::int64_t cores);
/// `run` and `times` outlive the result.
[[nodiscard]] JobTimes traced_job_times(const ResolvedJob& plan, const TracedRun& run, const TracedTimes& times);

/// The differences of a rehearsal from its trace.
struct RehearsalChange {
  std::map<std::string, double> faster;  ///< sections: how many times as fast; infinity: its passes take no time
  double latency_ms = 0;                 ///< more for every write and credit between processes
};

/// Plans units for a job, in order, with the costs that its planner would use: where plans follow measured times, those
/// of `times`; null: none.
[[nodiscard]] Result<std::vector<StepPlan>> plans_of(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                     const JobTimes* times);

/// Returns the job for TracedTimes. `plan` outlives it.
[[nodiscard]] TimedJob timed_job(const ResolvedJob& plan);

/// Rehearses units; `plans`: of plans_of(). All outlive the call.
[[nodiscard]] Result<Rehearsed> rehearse(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                         const std::vector<StepPlan>& plans, const JobTimes& times,
                                         const RehearsalChange& change = {});
/// Rehearses so many units whose plans are numbered, each made when it is announced. `last`: RehearsalOptions::last.
[[nodiscard]] Result<Rehearsed> rehearse_units(const ResolvedJob& plan, std::size_t units, const UnitMaker& unit_of,
                                               const JobTimes& times, const RehearsalChange& change,
                                               std::optional<std::size_t> last = {});

/// A rehearsal of training steps, and the time in which they follow each other as in a long run.
struct SteadyRehearsal {
  std::vector<StepPlan> plans;
  Rehearsed rehearsed;
  SteadySteps time;
};
/// Plans and rehearses units that are training steps. The first two are left out of the time, and so are the last ones,
/// as far as sections run ahead: those lack the work of steps that would follow. Error `invalid_argument` for fewer
/// than train.ahead + 5.
[[nodiscard]] Result<SteadyRehearsal> rehearse_steps(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                     const JobTimes& times, const RehearsalChange& change = {});
/// Returns how many units at the end are left out of the time.
[[nodiscard]] std::size_t units_behind(const ResolvedJob& plan);
/// Returns the rehearsal with its time, without plans. Errors as above.
[[nodiscard]] Result<SteadyRehearsal> steady_rehearsal(const ResolvedJob& plan, Result<Rehearsed> rehearsed);

}  // namespace maestro
