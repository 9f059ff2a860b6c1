// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator.hpp"

#include <algorithm>

#include "actors/run/data_source.hpp"

namespace maestro {

using Clock = std::chrono::steady_clock;

Coordinator::Coordinator(caf::actor_config& config, CoordinatorOptions options)
    : RunActor(config, options.supervisor),
      options_(std::move(options)),
      schedule_(options_.schedule),
      norms_(*options_.graph, options_.global_clip, options_.joined_norms),
      meter_(static_cast<std::int64_t>(options_.schedule.first_step) - 1,
             static_cast<std::int64_t>(options_.schedule.steps), options_.global_batch, Clock::now()) {
  options_.figures->begin_again();
  options_.figures->keep_measured(measured_steps_kept(options_.ahead));
  if (options_.moves_seats) replay_.emplace(*options_.graph);
}

caf::behavior Coordinator::make_behavior() {
  return {
      [this](const Directory& directory) { connect(directory); },
      progress(&Coordinator::begin),
      progress(&Coordinator::plan),
      progress(&Coordinator::announce_step),
      progress(&Coordinator::phase_pass_done),
      progress(&Coordinator::micro_batch_done),
      progress(&Coordinator::step_done),
      progress(&Coordinator::norm_reported),
      progress(&Coordinator::snapshot_written),
      progress(&Coordinator::committed),
      progress(&Coordinator::seats_lost),
      progress(&Coordinator::begin_again),
      progress(&Coordinator::base_kept),
      [this](Interrupt) {
        options_.record->interrupted = true;
        schedule_.stop();
        if (began_) announce();  // otherwise at Begin, when all processes are connected
        answer_pauses();
      },
      [this](const Rescue& loss) { return rescue(loss); },
      [this](RunStatusRequest) { return status(); },
      [this](const MetricsRequest& request) { return metrics(request); },
      [this](CheckpointRequest) { return checkpoint_requested(); },
      [this](const PauseRequest& request) { return pause_requested(request); },
  };
}

void Coordinator::begin(const Begin&) {
  began_ = true;
  started_ = Clock::now();
  if (!options_.record->began) options_.record->began = started_;
  note_recovery();
  for (const auto& [section, actors] : replicas_) last_step_end_[section] = started_;
  if (options_.guard && options_.guard->unanswered()) {
    keep_base(options_.guard->unanswered()->found.began);
    roll_back(*options_.guard->unanswered());
  }
  announce();
}

void Coordinator::note_recovery() {
  auto& recoveries = options_.record->recoveries;
  if (recoveries.empty() || recoveries.back().seconds > 0) return;
  recoveries.back().seconds = std::chrono::duration<double>(started_ - recoveries.back().begun).count();
  const bool rollback = recoveries.back().rollback;
  options_.console->note((rollback ? "rolled back: " : "recovered: ") + text_of(recoveries.back()));
  if (!rollback) note_event("recovered", {{"text", line_of(recoveries.back())}});
}

std::string Coordinator::where() const {
  return "coordinator, step " +
         std::to_string(open_.empty() ? options_.schedule.first_step : open_.begin()->first.first);
}

void Coordinator::on_exit() {
  RunActor::on_exit();
  replicas_.clear();
  rescuing_.reset();
  directory_.reset();
  options_.data_source = nullptr;
  options_.planner = nullptr;
}

void Coordinator::connect(const Directory& directory) {
  directory_ = std::make_shared<const Directory>(directory);
  for (const ReplicaAddress& replica : directory.replicas()) {
    auto& actors = replicas_[replica.section];
    actors.resize(std::max<std::size_t>(actors.size(), replica.replica.value() + 1));
    actors[replica.replica.value()] = replica.actor;
  }
}

std::size_t Coordinator::replicas_in_all() const {
  std::size_t count = 0;
  for (const auto& [section, actors] : replicas_) count += actors.size();
  return count;
}

std::size_t Coordinator::trained_sections() const {
  const auto& nodes = options_.graph->nodes();
  return static_cast<std::size_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.trained(); }));
}

SectionId watched_section(const SectionGraph& graph) {
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    // A section that awaits gradients has no loss of its own.
    if (!graph.nodes()[index].runs_backward() || graph.awaits_gradient(SectionId(index))) continue;
    return SectionId(index);
  }
  return SectionId(0);
}

void Coordinator::announce() {
  if (rescuing_) return;
  const std::int64_t most = options_.synchronous ? 1 : options_.ahead + 1;
  while (!awaiting_batch_ && !finished_ && static_cast<std::int64_t>(open_.size()) < most) {
    const std::optional<RunUnit> unit = schedule_.next();
    if (!unit) break;
    const Key key{unit->step.value(), unit->kind};
    open_[key].unit = *unit;
    if (is_checkpoint(unit->kind)) {
      announce_checkpoint(*unit);
      continue;
    }
    awaiting_batch_ = true;
    send_to(this, options_.data_source, BatchRequest{unit->step, pass_of(unit->kind)});
  }
  finish_if_done();
}

bool Coordinator::leave_out(const BatchMetadata& batch) {
  auto& all = options_.record->left_out;
  for (const std::string& reason : batch.left_out) {
    if (std::ranges::find(all, reason) != all.end()) continue;  // drawn again in a later epoch or validation
    all.push_back(reason);
    options_.console->note("left out: " + reason);
    note_event("left_out", {{"step", batch.step.value()}, {"reason", reason}});
  }
  const std::optional<std::string> too_many = too_many_left_out(all, options_.max_left_out);
  if (too_many) send_to(this, supervisor(), Failure{*too_many});
  return !too_many;
}

bool Coordinator::trains_something(const BatchMetadata& batch) {
  if (batch.pass != Pass::train) return true;
  any_kept_ = any_kept_ || !batch.samples.empty();
  const std::uint64_t steps = batch.step.value() - options_.schedule.first_step + 1;
  const bool all_met = batch.step.value() >= options_.schedule.steps ||
                       steps * static_cast<std::uint64_t>(options_.global_batch) >= options_.epoch_samples;
  if (any_kept_ || !all_met) return true;
  send_to(this, options_.supervisor, Failure{nothing_to_train_on(batch.step, options_.record->left_out)});
  return false;
}

void Coordinator::plan(const BatchMetadata& batch) {
  if (!leave_out(batch) || !trains_something(batch)) return;
  open_[key_of(batch.step, batch.pass)].samples = batch.samples;
  next_plan_.batch = batch;
  send_to(this, options_.planner, std::exchange(next_plan_, {}));
}

void Coordinator::announce_step(const StepPlanned& message) {
  if (rescuing_) return;
  awaiting_batch_ = false;
  StepPlan& plan = message.planned->plan;
  const bool train = plan.pass == Pass::train;
  Open& open = open_[{plan.step.value(), train ? RunUnit::Kind::train : RunUnit::Kind::validate}];
  open.watch = StepWatch(*options_.graph, message);
  for (MicroBatchPlan& micro_batch : plan.micro_batches) {
    const caf::actor& lane = replicas_.at(micro_batch.section)[micro_batch.replica.value()];
    if (replay_ && replay_->repeatable(micro_batch.section)) {
      send_to(this, lane, MicroBatchOrder{replay_->announced(micro_batch)});
      continue;
    }
    // Its samples are used again for measured passes only.
    send_to(this, lane, MicroBatchOrder{options_.measure ? micro_batch : std::move(micro_batch)});
  }
  send_end_marks(open, false);
  for (const PhaseCounts::Opening& phase : open.watch.phases().first()) open_phase(plan.step, phase);
  if (train) {
    StepCounts& counts = options_.record->counts[plan.step.value()];
    counts.read = open.samples.size();
    for (const SampleRef& sample : open.samples) {
      counts.tokens += static_cast<std::uint64_t>(sample.tokens);
      options_.record->distinct.insert(sample.id);
    }
  }
  announce();
}

void Coordinator::seats_lost(const SeatsLost& loss) {
  Recovery& recovery = options_.record->recoveries.emplace_back();
  recovery.cause = loss.cause;
  recovery.begun = Clock::now();
  recovery.in_place = true;
}

void Coordinator::begin_again(const BeginAgain& moved) {
  connect(moved.directory);
  const std::vector<MicroBatchPlan> repeated = replay_->again(moved.arrivals);
  for (const auto& [key, open] : open_) {
    for (const MicroBatchPlan& batch : repeated) {
      if (key_of(batch.step, batch.pass) != key) continue;
      send_to(this, replicas_.at(batch.section)[batch.replica.value()], MicroBatchOrder{batch});
    }
    if (open.watch.planned()) send_end_marks(open, true);
  }
  std::vector<Recovery>& recoveries = options_.record->recoveries;
  const bool after_loss = !recoveries.empty() && recoveries.back().in_place && recoveries.back().seconds == 0;
  if (!after_loss) {
    note_event("seats_moved", {{"text", moved.reason}});
    return options_.console->note(moved.reason);
  }
  Recovery& recovery = recoveries.back();
  recovery.repeated = repeated.size();
  recovery.seconds = std::chrono::duration<double>(Clock::now() - recovery.begun).count();
  options_.console->note("recovered: " + text_of(recovery));
  note_event("recovered", {{"text", line_of(recovery)}});
}

void Coordinator::open_phase(StepId step, const PhaseCounts::Opening& opening) {
  for (const auto& [section, replica] : opening.lanes) {
    send_to(this, replicas_.at(section)[replica.value()], PhaseOpen{step, opening.group, opening.phase});
  }
}

void Coordinator::phase_pass_done(const PhasePassDone& message) {
  if (rescuing_) return;
  Open& open = open_.begin()->second;  // a bulk-synchronous run has a single unit open at a time
  if (const auto phase = open.watch.phases().done(message.group, message.phase)) open_phase(message.step, *phase);
}

void Coordinator::send_end_marks(const Open& open, bool again) {
  for (const auto& [section, actors] : replicas_) {
    if (again && !replay_->repeatable(section)) continue;
    const StepBoundary mark{
        StepBoundary::Kind::end_step, open.unit.step, pass_of(open.unit.kind), {}, open.watch.active(section)};
    for (std::uint32_t replica = 0; replica < actors.size(); ++replica) {
      if (open.replicas_done.contains({section, ReplicaIndex(replica)})) continue;
      send_to(this, actors[replica], BoundaryOrder{mark});
    }
  }
}

void Coordinator::send_marks(const StepBoundary& mark) {
  for (const auto& [section, actors] : replicas_) {
    for (const caf::actor& lane : actors) send_to(this, lane, BoundaryOrder{mark});
  }
}

void Coordinator::micro_batch_done(const MicroBatchDone& message) {
  if (replay_ && replay_->repeatable(message.section) &&
      !replay_->done(message.section, message.step, message.pass, message.index)) {
    return;  // done again (CR-5)
  }
  Open& open = open_.at(key_of(message.step, message.pass));
  if (message.pass == Pass::train && message.section == watched_section(*options_.graph)) {
    options_.record->counts[message.step.value()].trained += static_cast<std::uint64_t>(message.samples);
  }
  const auto now = Clock::now();
  open.watch.done(message, now);
  options_.figures->pass_done(message, now);
  for (const Metric& metric : message.metrics) {
    open.totals[message.section].add(message.index, metric.name, metric.sum, metric.weight);
  }
}

void Coordinator::step_done(const StepDone& message) {
  const Key key = key_of(message.step, message.pass);
  const auto found = open_.find(key);
  const bool again =
      found == open_.end() || !found->second.replicas_done.insert({message.section, message.replica}).second;
  if (again) return;  // of a replica that has begun anew (CR-5)
  Open& open = found->second;
  const std::pair norm_and_lr(message.gradient_norm, message.lr);  // equal on all replicas
  open.norm_and_lr.try_emplace(message.section, norm_and_lr);
  open.lanes[{message.section, message.replica}] = {message.times, message.sent, message.transfers};
  if (++open.section_done[message.section] == replicas_.at(message.section).size())
    section_finished(open, message.section);
  if (open.replicas_done.size() == replicas_in_all()) close(key);
}

void Coordinator::section_finished(Open& open, SectionId section) {
  const GraphNode& node = options_.graph->node(section);
  const auto now = Clock::now();
  StepRow row{node.section_name(), open.unit.step, open.totals[section].means()};
  if (open.unit.kind == RunUnit::Kind::validate) {
    last_step_end_[section] = now;
    if (row.metrics.empty()) return;
    open.figures[row.section] = row.metrics;
    options_.record->validation[node.section_name()] = row.metrics;
    if (options_.journal) options_.journal->validated(row);
    options_.record->validations.erase_if([&](const StepRow& earlier) {  // done again after a loss
      return earlier.section == row.section && earlier.step == row.step;
    });
    options_.record->validations.push_back(std::move(row));
    return;
  }
  const double step_ms = std::chrono::duration<double, std::milli>(now - last_step_end_[section]).count();
  last_step_end_[section] = now;
  if (!node.runs_backward() || !open.watch.active(section)) return;
  if (node.stage + 1 < node.stages) return;  // the last stage has the losses, and reports for the section
  if (section == watched_section(*options_.graph)) {
    if (const auto found = row.metrics.find("loss"); found != row.metrics.end()) loss_ = found->second;
    parts_ = row.metrics;
    parts_.erase("loss");
    report_progress(open.unit.step);
  }
  if (const auto found = row.metrics.find("loss"); found != row.metrics.end()) {
    options_.record->losses[row.section] = found->second;
  }
  if (node.trained()) {
    row.metrics["grad_norm"] = open.norm_and_lr[section].first;
    if (!open.skipped) row.metrics["lr"] = open.norm_and_lr[section].second;
  }
  if (open.skipped) row.metrics[skipped_metric] = 1;
  row.metrics["step_ms"] = step_ms;
  latest_[row.section] = row;
  options_.record->unfinished[row.step.value()].push_back(std::move(row));
}

void Coordinator::norm_reported(const NormReport& report) {
  Open& open = open_.at({report.step.value(), RunUnit::Kind::train});
  const auto active = [&open](SectionId section) { return open.watch.active(section); };
  NormTotals::Answers answers = norms_.add(report, active);
  const bool skipped = !answers.empty() && skips(open, answers);
  for (auto& [section, total] : answers) {
    total.skipped = skipped;
    for (const caf::actor& lane : replicas_.at(section)) send_to(this, lane, total);
  }
}

void Coordinator::close(Key key) {
  Open& open = open_.at(key);
  RunRecord& record = *options_.record;
  const auto now = Clock::now();
  options_.figures->lanes_ended(open.lanes, key.second == RunUnit::Kind::train);
  if (key.second == RunUnit::Kind::train) {
    record.last_step = key.first;
    record.scheduling.push_back(open.watch.row(*record.began));
    std::vector<StepRow> rows = std::move(record.unfinished[key.first]);
    record.unfinished.erase(key.first);
    std::ranges::sort(rows, {}, &StepRow::section);
    for (const StepRow& row : rows) record.steps.push_back(row);
    guard(rows);
    if (options_.journal) {
      options_.journal->step({open.unit.step, std::move(rows), record.counts[key.first], digest_of(open.samples),
                              record.scheduling.kept().back(), lanes_of(open)});
    }
    if (options_.measure) next_plan_ = {{}, open.watch.measured(), measured_transfers(open.lanes)};
    const double seconds = std::chrono::duration<double>(now - std::max(started_, unit_started_)).count();
    record.train_seconds += seconds;
    options_.figures->step_ended(open.unit.step, seconds, record.counts[key.first], now,
                                 std::chrono::system_clock::now());
    keep_measured(open, seconds);
  }
  print_validation(open);
  unit_started_ = now;
  if (replay_ && !is_checkpoint(key.second)) {
    replay_->closed(StepId(key.first), pass_of(key.second));
  }
  open_.erase(key);
  record.counts.settle(open_.empty() ? record.last_step : open_.begin()->first.first - 1);
  announce();
}

void Coordinator::finish_if_done() {
  if (options_.current_step != nullptr && !open_.empty()) {
    options_.current_step->store(open_.begin()->first.first, std::memory_order_relaxed);
  }
  if (finished_ || awaiting_batch_ || !open_.empty()) return;
  if (rolling_back_ && !schedule_.stopped()) return go_back();
  if (!schedule_.complete()) return answer_pauses();
  finished_ = true;
  if (options_.finishing) options_.finishing();
  note_event("finished", {{"step", last_step().value()}, {"interrupted", options_.record->interrupted}});
  answer_pauses();
  send_to(this, supervisor(), Finish{});
}

}  // namespace maestro
