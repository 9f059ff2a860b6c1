// SPDX-License-Identifier: Apache-2.0
// Plans steps during training: a thin shell around StepPlanner on a separate thread, so that planning step k+1 never
// delays step k. It answers each PlanStep with StepPlanned, in the order of the requests. A trace has a slice for each
// plan, with the samples of the step.
#pragma once

#include "actors/messages/run_actor.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

class Planner : public RunActor {
 public:
  /// `trace` may be null; else it outlives the actor.
  Planner(caf::actor_config& config, StepPlannerOptions options, TraceRecorder* trace, caf::actor supervisor);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.planner"; }

 private:
  [[nodiscard]] std::string where() const override { return "planner, step " + std::to_string(step_.value()); }
  void plan(const PlanStep& request);

  StepPlanner planner_;
  TraceRecorder* trace_;
  StepId step_;  // step of the last request
};

}  // namespace maestro
