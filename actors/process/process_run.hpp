// SPDX-License-Identifier: Apache-2.0
// One process's part of a run: its devices, sections, actors and their end. Shells out to the launcher, the supervisor
// and the coordinator; holds everything that must outlive the actors.
//
// PR-1: teardown goes actors -> network -> devices -> sections, each stopped before what it uses.
// PR-2: a run that failed ends this process within a bounded time, whatever still hangs.
#pragma once

#include <memory>

#include "actors/plan/job_plan.hpp"
#include "actors/process/job_start.hpp"
#include "actors/run/run_result.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

class ProcessRun {
 public:
  /// `start`: of a job of several processes; else null. All must outlive the run.
  ProcessRun(const JobPlan& plan, Console& console, JobStart* start);
  ~ProcessRun();
  ProcessRun(const ProcessRun&) = delete;
  ProcessRun& operator=(const ProcessRun&) = delete;

  /// What can be checked before anything starts: checkpoint, weights, output folder. Throws JobError.
  void prepare();
  /// Runs to the end and prints what went wrong, if anything. Does not return from a failed run of a job of several
  /// processes: it exits with status 1 (PR-2).
  RunResult run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
