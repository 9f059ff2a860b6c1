// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/planner.hpp"

#include <chrono>

#include "runtime/schedule/sample_list.hpp"

namespace maestro {

Planner::Planner(caf::actor_config& config, StepPlannerOptions options, TraceRecorder* trace, caf::actor supervisor)
    : RunActor(config, std::move(supervisor)), planner_(std::move(options)), trace_(trace) {}

caf::behavior Planner::make_behavior() {
  return {[this](const PlanStep& request) { plan(request); }};
}

void Planner::plan(const PlanStep& request) {
  const auto begin = std::chrono::steady_clock::now();
  for (const MeasuredPass& pass : request.measured) planner_.costs().measured(pass);
  for (const MeasuredTransfer& transfer : request.transfers) planner_.costs().transferred(transfer);
  const BatchMetadata& batch = request.batch;
  step_ = batch.step;
  const double scale = batch.target_tokens > 0 ? 1.0 / static_cast<double>(batch.target_tokens) : 0.0;
  Result<PlannedStep> planned = planner_.plan(batch.step, batch.pass, batch.samples, scale);
  if (!planned) {
    return send_to(this, supervisor(),
                   Failure{"planning step " + std::to_string(batch.step.value()) + ": " + planned.error().message});
  }
  StepPlanned answer;
  answer.planned = std::make_shared<PlannedStep>(std::move(*planned));
  const auto end = std::chrono::steady_clock::now();
  answer.planning_ms = std::chrono::duration<double, std::milli>(end - begin).count();
  if (trace_ != nullptr && trace_->on()) {
    trace_->slice({trace_->track("planner"), "plan", TraceCategory::plan, begin, end},
                  {{"step", batch.step.value()},
                   {"pass", batch.pass == Pass::train ? "train" : "evaluate"},
                   {"samples", sample_list(batch.samples)}});
  }
  send_to(this, caf::actor_cast<caf::actor>(current_sender()), std::move(answer));
}

}  // namespace maestro
