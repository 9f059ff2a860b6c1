// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/step_recorder.hpp"

#include <algorithm>
#include <cmath>

#include "actors/run/record/made_figures.hpp"

namespace maestro {

SectionId watched_section(const SectionGraph& graph) {
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    // A section that awaits gradients computes no loss.
    if (!graph.nodes()[index].runs_backward() || graph.awaits_gradient(SectionId(index))) continue;
    return SectionId(index);
  }
  return SectionId(0);
}

StepRecorder::StepRecorder(const CoordinatorOptions& options)
    : options_(&options),
      last_end_(options.graph->nodes().size()),
      meter_(static_cast<std::int64_t>(options.schedule.first_step) - 1,
             static_cast<std::int64_t>(options.schedule.steps), options.global_batch, Clock::now()) {
  options.figures->begin_again();
  options.figures->keep_measured(measured_steps_kept(options.ahead));
}

void StepRecorder::begin() {
  began_ = Clock::now();
  if (!options_->record->began) options_->record->began = began_;
  std::ranges::fill(last_end_, *began_);
  std::vector<Recovery>& recoveries = options_->record->recoveries;
  if (!recoveries.empty() && recoveries.back().seconds == 0) recovered(recoveries.back());
}

void StepRecorder::recovered(Recovery& recovery) const {
  recovery.seconds = std::chrono::duration<double>(Clock::now() - recovery.begun).count();
  options_->console->note((recovery.rollback ? "rolled back: " : "recovered: ") + text_of(recovery));
  if (!recovery.rollback) options_->note_event("recovered", {{"text", line_of(recovery)}});
}

void StepRecorder::placements_lost(const PlacementsLost& loss) {
  Recovery& recovery = options_->record->recoveries.emplace_back();
  recovery.cause = loss.cause;
  recovery.begun = Clock::now();
  recovery.in_place = true;
}

void StepRecorder::seats_moved(const std::string& reason, std::size_t repeated) {
  std::vector<Recovery>& recoveries = options_->record->recoveries;
  const bool after_loss = !recoveries.empty() && recoveries.back().in_place && recoveries.back().seconds == 0;
  if (!after_loss) {
    options_->note_event("seats_moved", {{"text", reason}});
    return options_->console->note(reason);
  }
  recoveries.back().repeated = repeated;
  recovered(recoveries.back());
}

double StepRecorder::batch_wait_ms() const {
  const Clock::time_point since = std::max(batch_requested_, unit_began_);
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

void StepRecorder::restart_clocks() {
  unit_began_ = Clock::now();
  std::ranges::fill(last_end_, unit_began_);
}

void StepRecorder::step_announced(const OpenUnit& step) {
  StepSamples& counts = options_->record->counts[step.unit.step.value()];
  counts.read = step.samples.size();
  for (const SampleRef& sample : step.samples) {
    counts.tokens += static_cast<std::uint64_t>(sample.tokens);
    options_->record->distinct.insert(sample.in_corpus());
  }
  if (step.made.lengths.empty()) return;
  StepRow row{options_->generator, step.unit.step, figures_of(step.made, step.unit.step)};
  row.metrics["rollout_wait_ms"] = step.batch_wait_ms;
  latest_[row.section] = options_->record->made = row;
  options_->record->unfinished[row.step.value()].push_back(std::move(row));
}

void StepRecorder::micro_batch_done(OpenUnit& open, const MicroBatchDone& message) {
  if (message.pass == Pass::train && message.section == watched_section(*options_->graph)) {
    options_->record->counts[message.step.value()].trained += static_cast<std::uint64_t>(message.samples);
  }
  const auto now = Clock::now();
  open.watch.done(message, now);
  options_->figures->pass_done(message, now);
  for (const Metric& metric : message.metrics) {
    open.totals[message.section].add(message.index, metric.name, metric.sum, metric.weight);
  }
}

std::map<std::string, double> StepRecorder::means_of_stages(const OpenUnit& open, const GraphNode& node) const {
  MetricTotals all;
  for (const auto& [section, totals] : open.totals) {
    if (options_->graph->node(section).section_name() == node.section_name()) all.add(totals);
  }
  return all.means();
}

void StepRecorder::add_wire_error(StepRow& row, const OpenUnit& open) const {
  WireError all;
  for (const auto& [lane, report] : open.lanes) {
    if (options_->graph->node(lane.first).section_name() == row.section) all.add(report.wire);
  }
  if (all.values > 0) row.metrics["wire_error"] = std::sqrt(all.error / all.values);
}

void StepRecorder::early_stage_ended(const OpenUnit& open, const GraphNode& node) {
  const auto rows = options_->record->unfinished.find(open.unit.step.value());
  if (rows == options_->record->unfinished.end()) return;  // the last stage's end takes all metrics so far
  const auto row = std::ranges::find(rows->second, node.section_name(), &StepRow::section);
  if (row == rows->second.end()) return;
  for (const auto& [name, mean] : means_of_stages(open, node)) row->metrics[name] = mean;
  add_wire_error(*row, open);
  latest_[row->section] = *row;
}

void StepRecorder::section_ended(OpenUnit& open, SectionId section, const std::vector<Metric>& figures) {
  for (const Metric& figure : figures) open.totals[section].add(0, figure.name, figure.sum, figure.weight);
  const GraphNode& node = options_->graph->node(section);
  const auto now = Clock::now();
  const auto last_end = std::exchange(last_end_[section.value()], now);
  const bool validates = open.unit.kind == RunUnit::Kind::validate;
  StepRow row{node.section_name(), open.unit.step,
              validates ? open.totals[section].means() : means_of_stages(open, node)};
  if (validates) return validated(open, std::move(row));
  if (!node.runs_backward() || !open.watch.active(section)) return;
  // The last stage has the losses, and reports for the section. Losses of experts come from all stages.
  if (node.stage + 1 < node.stages) return early_stage_ended(open, node);
  const auto loss = row.metrics.find("loss");
  if (section == watched_section(*options_->graph)) {
    if (loss != row.metrics.end()) loss_ = loss->second;
    parts_ = row.metrics;
    parts_.erase("loss");
    report_progress(open.unit.step);
  }
  if (loss != row.metrics.end()) options_->record->losses[row.section] = loss->second;
  if (node.trained()) {
    row.metrics["grad_norm"] = open.norm_and_lr[section].first;
    if (!open.skipped) row.metrics["lr"] = open.norm_and_lr[section].second;
  }
  add_wire_error(row, open);
  if (open.skipped) row.metrics[skipped_metric] = 1;
  row.metrics["step_ms"] = std::chrono::duration<double, std::milli>(now - last_end).count();
  latest_[row.section] = row;
  options_->record->unfinished[row.step.value()].push_back(std::move(row));
}

void StepRecorder::validated(OpenUnit& open, StepRow row) {
  if (row.metrics.empty()) return;
  RunRecord& record = *options_->record;
  open.figures[row.section] = row.metrics;
  record.validation[row.section] = row.metrics;
  if (options_->journal) options_->journal->validated(row);
  record.validations.erase_if([&](const StepRow& earlier) {  // done again after a loss
    return earlier.section == row.section && earlier.step == row.step;
  });
  record.validations.push_back(std::move(row));
}

std::vector<StepRow> StepRecorder::step_ended(const OpenUnit& step, Clock::time_point end) {
  RunRecord& record = *options_->record;
  record.last_step = step.unit.step.value();
  SchedulingRow times = step.watch.row(*record.began);
  times.step_ms = std::chrono::duration<double, std::milli>(end - std::max(*began_, unit_began_)).count();
  record.scheduling.push_back(std::move(times));
  std::vector<StepRow> rows = std::move(record.unfinished[record.last_step]);
  record.unfinished.erase(record.last_step);
  std::ranges::sort(rows, {}, &StepRow::section);
  for (const StepRow& row : rows) record.steps.push_back(row);
  return rows;
}

void StepRecorder::keep_step(OpenUnit& step, std::vector<StepRow> rows, Clock::time_point end) {
  RunRecord& record = *options_->record;
  const StepSamples& counts = record.counts[record.last_step];
  if (options_->journal) {
    options_->journal->step({step.unit.step, std::move(rows), counts, digest_of(step.samples, step.made.digest),
                             record.scheduling.kept().back(), lanes_of(step), step.made});
  }
  const double seconds = record.scheduling.kept().back().step_ms / 1000;
  record.train_seconds += seconds;
  options_->figures->step_ended(step.unit.step, seconds, counts, end, std::chrono::system_clock::now());
  keep_measured(step, seconds);
}

void StepRecorder::unit_ended(const OpenUnit& open, Clock::time_point end) {
  print_validation(open);
  unit_began_ = end;
}

void StepRecorder::report_progress(StepId step) {
  const auto now = Clock::now();
  Progress progress = meter_.finished(static_cast<std::int64_t>(step.value()), loss_, now);
  progress.parts = parts_;
  options_->console->progress(progress, now);
}

void StepRecorder::print_validation(const OpenUnit& open) const {
  std::string text;
  LogFields fields = {{"event", "validation"}, {"step", open.unit.step.value()}};
  for (const auto& [section, figures] : open.figures) {
    text += (text.empty() ? ": " : "; ") + section + " " + format_figures(figures);
    fields.emplace_back("validation." + section, figures);
  }
  if (text.empty()) return;
  options_->console->note("validation after step " + std::to_string(open.unit.step.value()) + text, std::move(fields));
}

std::map<std::string, LaneTimes> StepRecorder::lanes_of(const OpenUnit& open) const {
  std::map<std::string, LaneTimes> lanes;
  for (const auto& [lane, report] : open.lanes) {
    const GraphNode& node = options_->graph->node(lane.first);
    if (node.plays_in_steps()) lanes[node.name + "/" + std::to_string(lane.second.value())] = report.times;
  }
  return lanes;
}

void StepRecorder::keep_measured(OpenUnit& open, double seconds) {
  PassTimes passes = open.watch.times();
  if (passes.empty() || open.skipped || open.samples.empty()) return;
  options_->figures->step_measured({open.unit.step, seconds * 1000,
                                    options_->record->scheduling.kept().back().planning_ms, std::move(open.samples),
                                    std::move(passes), std::move(open.lanes)});
  if (options_->figures->measured().next() >= steps_before_comparison) compare_with_plan();
}

void StepRecorder::compare_with_plan() {
  RunRecord& record = *options_->record;
  if (record.drift || options_->predicted.predicted_step_ms == 0) return;
  record.drift = drift_from(options_->predicted, *options_->graph, options_->figures->measured().kept());
  EventFields fields{{"step", record.last_step},
                     {"predicted_step_ms", record.drift->predicted_ms},
                     {"measured_step_ms", record.drift->measured_ms}};
  if (record.drift->is_off()) {
    fields.emplace_back("text", text_of(*record.drift));
    options_->console->note("note: " + text_of(*record.drift));
  }
  options_->note_event("compared", fields);
}

double StepRecorder::recent_samples_per_s() const {
  constexpr std::size_t window = 20;  // steps
  const auto& rows = options_->record->scheduling.kept();
  if (rows.size() < 2) return 0;
  const std::size_t steps = std::min(window, rows.size() - 1);
  const double ms = rows.back().begin_ms - rows[rows.size() - 1 - steps].begin_ms;
  return ms > 0 ? static_cast<double>(steps) * static_cast<double>(options_->global_batch) * 1000 / ms : 0;
}

void StepRecorder::describe(RunStatus& status) const {
  const RunRecord& record = *options_->record;
  if (began_) status.elapsed_s = std::chrono::duration<double>(Clock::now() - *began_).count();
  status.samples_per_s = recent_samples_per_s();
  const StepSamples counts = record.totals();
  status.samples_trained = counts.trained;
  status.tokens_trained = counts.tokens;
  status.latest = latest_;
  const auto watched = latest_.find(options_->graph->node(watched_section(*options_->graph)).section_name());
  if (watched != latest_.end() && watched->second.metrics.contains("loss")) status.loss = loss_;
  status.steady_step = record.steady_step();
  status.checkpoint = record.checkpoint;
  for (const Recovery& recovery : record.recoveries) status.recoveries.push_back(line_of(recovery));
  status.left_out = record.left_out.size();
  status.figures = options_->figures->totals();
}

}  // namespace maestro
