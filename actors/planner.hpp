// Plans steps beside training: a thin shell around StepPlanner with a thread of its own, so that planning step k+1 is
// never on the path of step k. It answers PlanStep with StepPlanned, one step after the other in the order asked.
#pragma once

#include "actors/messages.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

class Planner : public caf::event_based_actor {
 public:
  Planner(caf::actor_config& config, StepPlannerOptions options, caf::actor supervisor);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.planner"; }
  void on_exit() override { supervisor_ = nullptr; }

 private:
  void plan(const PlanStep& request);

  StepPlanner planner_;
  caf::actor supervisor_;
};

}  // namespace maestro
