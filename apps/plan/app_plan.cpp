// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/app_plan.hpp"

#include <algorithm>

#include "apps/plan/planned_job.hpp"
#include "apps/plan/planned_job_text.hpp"

namespace maestro {

AppPlan plan_app(const ComposeApp& compose, const AppPlanOptions& options, Console& console) {
  PlannedJobOptions planning;
  planning.varied = options.varied;
  planning.profile = options.profile;
  planning.cpu_devices = options.cpu_devices;
  planning.gpus = options.gpus;
  planning.measure_ms = options.measure_ms;
  planning.top = options.top;
  planning.tries = options.trials;
  planning.steps = options.steps;
  PlannedJob job(PlannedApp(compose, console), std::move(planning), console);
  const RankingReport report = job.report();
  AppPlan plan;
  const std::size_t count =
      std::min(report.ranking.best.size(), static_cast<std::size_t>(std::max(options.top, options.trials)));
  for (std::size_t at = 0; at < count; ++at) {
    const RankedLayout& ranked = report.ranking.best[at];
    PlannedLayout& layout = plan.layouts.emplace_back();
    layout.step_ms = ranked.step_ms;
    layout.samples_per_s = static_cast<double>(report.global_batch) / ranked.step_ms * 1e3;
    if (report.tried && at < report.tried->step_ms.size()) layout.tried_step_ms = report.tried->step_ms[at];
    layout.bytes = ranked.bytes_of_devices;
    for (const auto& [section, chosen] : ranked.sections) layout.texts[section] = placed_text(ranked, section);
    layout.settings = ranked.settings;
    layout.prediction = settings_of(prediction_of(ranked));
    if (&ranked == &chosen_layout(report)) plan.chosen = at;
  }
  plan.bound_ms = report.ranking.least_bound_ms;
  for (const Alternative& other : report.ranking.alternatives) plan.alternatives[other.change] = other.step_ms;
  for (const std::string& line : ranking_lines(report)) plan.text += (plan.text.empty() ? "" : "\n") + line;
  return plan;
}

}  // namespace maestro
