// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/plan_reader.hpp"

namespace maestro {

PlanConfig read_plan(const JobTable& plan) {
  constexpr NumberRange milliseconds{.min = 0, .max = 1e12, .min_open = true};
  PlanConfig out;
  out.predicted_step_ms = plan.number(
      "predicted_step_ms", out.predicted_step_ms, milliseconds,
      {"the step time predicted by the rehearsal that chose the layouts; a run notes once, after 20 steps, if its "
       "step times differ from it by over a tenth; absent: no prediction",
       "ms"});
  const JobTable passes = plan.table("predicted_passes_ms", {"the predicted time per step that each section spends "
                                                             "in passes, the mean of its replicas and stages",
                                                             "ms"});
  for (const std::string& section : passes.keys()) {
    out.predicted_passes_ms[section] = passes.number(section, 0, {.min = 0, .max = milliseconds.max});
  }
  out.objective = plan.choice(
      "objective", out.objective, plan_objective_names,
      {"the aim of the choice: time: the fastest steps; money: the cheapest; extra: the fewest devices in addition to "
       "the devices of the sections in `keep`"});
  out.keep = plan.texts("keep", {}, {"sections that kept their devices, with objective = \"extra\""});
  out.stall = plan.number("stall", out.stall, {.min = 0, .max = 1, .min_open = true, .max_open = true},
                          {"the largest share of the time that sections in `keep` may wait for others"});
  out.headroom = plan.number("headroom", out.headroom, {.min = 0, .max = 1, .min_open = true},
                             {"the share of a device's memory that the layouts may need; absent: no limit"});
  const bool extra = out.objective == PlanObjective::extra;
  if (extra && out.keep.empty()) plan.fail("objective", "\"extra\" needs `keep`: the sections that keep their devices");
  for (const char* const key : {"keep", "stall"}) {
    if (!extra && plan.has(key)) plan.fail(key, "applies only with objective = \"extra\"");
  }
  if (out.predicted_step_ms == 0 && plan.has("predicted_passes_ms")) {
    plan.fail("predicted_passes_ms", "applies only with predicted_step_ms");
  }
  return out;
}

}  // namespace maestro
