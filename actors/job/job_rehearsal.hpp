// SPDX-License-Identifier: Apache-2.0
// Runs a resolved job in virtual time, with the times of a traced run or of priced calls. Pure.
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

/// RehearsalTimes::hop_ms, as seen in traces of runs on CPUs.
inline constexpr double usual_hop_ms = 0.03;

/// How sections share an emulated device or a GPU.
enum class DeviceSharing : std::uint8_t {
  turns,     ///< a pass at a time, as on emulated devices
  streams,   ///< concurrently, as streams of a GPU: in equal parts, or by demand for sections with a share; frozen
             ///< sections run only while no other section has work
  measured,  ///< on a GPU: the times already include the sharing
};

/// Times of a job's work, in milliseconds.
struct JobTimes {
  std::function<PassCost(const MicroBatchPlan& batch)> pass;
  /// Returns an action's time; of an exchange, from the arrival of its last replica.
  std::function<double(SectionId section, StepAction action)> action;
  /// Returns the time of a write between two processes.
  std::function<double(SectionId from, SectionId to, std::int64_t rows)> write;
  double hop_ms = 0;  ///< RehearsalTimes::hop_ms
  /// Cores per host; device cpu:K uses core K % cores. Pass times assume an exclusive core. 0: every device has its own
  /// core, or the times already include sharing, as in measured runs.
  std::int64_t cores = 0;
  DeviceSharing sharing = DeviceSharing::turns;
  /// Returns the fraction of a GPU that a section with a share needs (CO-3), if sections share it as streams; empty: no
  /// demands.
  std::function<double(SectionId section)> demand = {};
  bool apart = false;  ///< each section has separate processes, so every tensor is written
  /// Times of the job's generator; none: its samples are there.
  std::optional<GenerationTimes> generation = {};
};
/// Returns whether devices of the job share a core. `cores`: JobTimes::cores.
[[nodiscard]] bool shares_cores(const ResolvedJob& plan, std::int64_t cores);
/// Returns the times of a traced run. `run` and `times` outlive the result.
[[nodiscard]] JobTimes traced_job_times(const ResolvedJob& plan, const TracedRun& run, const TracedTimes& times);

/// Differences between a rehearsal and its trace.
struct RehearsalChange {
  std::map<std::string, double> faster;  ///< speed-up, by section; infinity: its passes take no time
  double latency_ms = 0;                 ///< added to every write and credit between processes
  /// Deviation of the logarithm of a pass' time: each is multiplied by a log-normal number with mean 1, which depends
  /// on seed, step and pass alone. Plans do not know it.
  double noise = 0;
  std::uint64_t seed = 0;  ///< seed of the noise
};

/// Plans units for a job, in order, with the costs that its planner would use. If plans follow measured times, `times`
/// gives them; null: nothing is measured.
[[nodiscard]] Result<std::vector<StepPlan>> plans_of(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                     const JobTimes* times);

/// Returns the job for TracedTimes. `plan` outlives it.
[[nodiscard]] TimedJob timed_job(const ResolvedJob& plan);

/// Rehearses units. `plans`: the result of plans_of(). All arguments outlive the call.
[[nodiscard]] Result<Rehearsed> rehearse(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                         const std::vector<StepPlan>& plans, const JobTimes& times,
                                         const RehearsalChange& change = {});
/// Rehearses units with numbered plans; `unit_of` makes each when it is announced. `last`: RehearsalOptions::last.
[[nodiscard]] Result<Rehearsed> rehearse_units(const ResolvedJob& plan, std::size_t units, const UnitMaker& unit_of,
                                               const JobTimes& times, const RehearsalChange& change,
                                               std::optional<std::size_t> last = {});

/// A rehearsal of training steps, and the time between steps in a long run.
struct SteadyRehearsal {
  std::vector<StepPlan> plans;
  Rehearsed rehearsed;
  SteadySteps time;
};
/// Plans and rehearses units that are training steps. The time leaves out the first two steps, and
/// units_behind() steps at the end: sections run ahead, and no further work follows the last step. Error
/// `invalid_argument` for fewer than train.ahead + 5 units.
[[nodiscard]] Result<SteadyRehearsal> rehearse_steps(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                     const JobTimes& times, const RehearsalChange& change = {});
/// Returns how many units at the end are left out of the time.
[[nodiscard]] std::size_t units_behind(const ResolvedJob& plan);
/// Returns the rehearsal with its time, without plans. Errors as above.
[[nodiscard]] Result<SteadyRehearsal> steady_rehearsal(const ResolvedJob& plan, Result<Rehearsed> rehearsed);

}  // namespace maestro
