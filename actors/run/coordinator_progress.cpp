// SPDX-License-Identifier: Apache-2.0
// What the coordinator prints while the run goes on, and keeps of finished steps.
#include "actors/run/coordinator.hpp"

namespace maestro {

void Coordinator::report_progress(StepId step) {
  const auto now = std::chrono::steady_clock::now();
  Progress progress = meter_.finished(static_cast<std::int64_t>(step.value()), loss_, now);
  progress.parts = parts_;
  options_.console->progress(progress, now);
}

void Coordinator::print_validation(const Open& open) const {
  std::string text;
  LogFields fields = {{"event", "validation"}, {"step", open.unit.step.value()}};
  for (const auto& [section, figures] : open.figures) {
    text += (text.empty() ? ": " : "; ") + section + " " + format_figures(figures);
    fields.emplace_back("validation." + section, figures);
  }
  if (text.empty()) return;
  options_.console->note("validation after step " + std::to_string(open.unit.step.value()) + text, std::move(fields));
}

std::map<std::string, LaneTimes> Coordinator::lanes_of(const Open& open) const {
  std::map<std::string, LaneTimes> lanes;
  for (const auto& [lane, report] : open.lanes) {
    const GraphNode& node = options_.graph->node(lane.first);
    if (node.role != Role::source) lanes[node.name + "/" + std::to_string(lane.second.value())] = report.times;
  }
  return lanes;
}

/// Keeps a finished step of the run; its samples and the reports of its lanes are moved.
void Coordinator::keep_measured(Open& open, double seconds) {
  RunRecord& record = *options_.record;
  PassTimes passes = open.watch.times();
  if (passes.empty() || open.skipped || open.samples.empty()) return;
  options_.figures->step_measured({open.unit.step, seconds * 1000, record.scheduling.kept().back().planning_ms,
                                   std::move(open.samples), std::move(passes), std::move(open.lanes)});
  if (options_.figures->measured().next() >= steps_before_comparison) compare_with_plan();
}

void Coordinator::compare_with_plan() {
  RunRecord& record = *options_.record;
  if (record.drift || options_.predicted.predicted_step_ms == 0) return;
  record.drift = drift_from(options_.predicted, *options_.graph, options_.figures->measured().kept());
  EventFields fields{{"step", record.last_step},
                     {"predicted_step_ms", record.drift->predicted_ms},
                     {"measured_step_ms", record.drift->measured_ms}};
  if (record.drift->is_off()) {
    fields.emplace_back("text", text_of(*record.drift));
    options_.console->note("note: " + text_of(*record.drift));
  }
  note_event("compared", fields);
}

}  // namespace maestro
