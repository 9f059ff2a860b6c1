// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/coordinator.hpp"

#include <algorithm>

#include "actors/job/data_source.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds standing_limit(5);

bool is_checkpoint(RunUnit::Kind kind) {
  return kind == RunUnit::Kind::checkpoint || kind == RunUnit::Kind::shadow;
}

Pass pass_of(RunUnit::Kind kind) {
  return kind == RunUnit::Kind::train ? Pass::train : Pass::evaluate;
}
std::string stop_line(const std::string& reason, std::uint64_t last, const RunScheduleOptions& schedule) {
  const std::uint64_t first = schedule.first_step;
  return (reason.empty() ? "" : reason + ": ") + "stopping " +
         (last < first ? "before step " + std::to_string(first) : "after step " + std::to_string(last)) +
         (schedule.keeps_state && last >= first ? ", with a checkpoint" : "") + " (Ctrl-C again to leave at once)";
}

}  // namespace

Coordinator::Coordinator(caf::actor_config& config, CoordinatorOptions options)
    : RunActor(config, options.supervisor),
      options_(std::move(options)),
      schedule_(options_.schedule),
      norms_(*options_.graph, options_.global_clip, options_.joined_norms),
      recorder_(options_),
      checkpoints_(options_),
      spikes_(std::move(options_.guard), options_, schedule_) {
  if (options_.moves_placements) replay_.emplace(*options_.graph);
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
      progress(&Coordinator::placements_lost),
      progress(&Coordinator::begin_again),
      progress(&Coordinator::base_kept),
      [this](const Interrupt& request) { interrupt(request.reason); },
      [this](const Rescue& loss) { return rescue(loss); },
      [this](RunStatusRequest) { return status(); },
      [this](const MetricsRequest& request) { return metrics_rows(*options_.record, request); },
      [this](CheckpointRequest) { return checkpoint_requested(); },
      [this](const PauseRequest& request) { return pause_requested(request); },
  };
}

void Coordinator::begin(const Begin&) {
  began_ = true;
  recorder_.begin();
  for (const GraphRegister& each : options_.graph->registers()) {  // generators begin with the weights of the start
    const StepBoundary mark{StepBoundary::Kind::publish, StepId(options_.schedule.first_step - 1), Pass::train, {}};
    for (const caf::actor& lane : replicas_.at(each.from)) send_to(this, lane, BoundaryOrder{mark});
  }
  spikes_.answer_recorded(base_receiver());
  announce();
}

std::string Coordinator::where() const {
  return "coordinator, step " +
         std::to_string(open_.empty() ? options_.schedule.first_step : open_.begin()->first.first);
}

void Coordinator::on_exit() {
  RunActor::on_exit();
  replicas_.clear();
  rescue_.reset();
  directory_.reset();
  options_.data_source = nullptr;
  options_.planner = nullptr;
}

void Coordinator::connect(const Directory& directory) {
  directory_ = std::make_shared<const Directory>(directory);
  if (makes_samples()) send_to(this, options_.data_source, directory);
  for (const ReplicaAddress& replica : directory.replicas()) {
    if (options_.graph->node(replica.section).generates()) continue;  // it takes part in no step
    auto& actors = replicas_[replica.section];
    actors.resize(std::max<std::size_t>(actors.size(), replica.replica.value() + 1));
    actors[replica.replica.value()] = replica.actor;
  }
  replicas_in_all_ = 0;
  for (const auto& [section, actors] : replicas_) replicas_in_all_ += actors.size();
}

void Coordinator::announce() {
  if (rescue_) return;
  const std::int64_t most = options_.synchronous ? 1 : options_.ahead + 1;
  while (!awaited_ && !finished_ && static_cast<std::int64_t>(open_.size()) < most) {
    const std::optional<RunUnit> unit = schedule_.next();
    if (!unit) break;
    open_[key_of(*unit)].unit = *unit;
    if (is_checkpoint(unit->kind)) {
      announce_checkpoint(*unit);
      continue;
    }
    awaited_ = key_of(*unit);
    recorder_.batch_requested();
    send_to(this, options_.data_source, BatchRequest{unit->step, pass_of(unit->kind)});
  }
  finish_if_done();
}

bool Coordinator::leave_out(const BatchMetadata& batch) {
  auto& all = options_.record->left_out;
  const std::size_t before = all.size();
  for (const std::string& reason : batch.left_out) {
    if (std::ranges::find(all, reason) != all.end()) continue;  // the sample was drawn before
    all.push_back(reason);
    options_.note_event("left_out", {{"step", batch.step.value()}, {"reason", reason}});
  }
  const std::optional<std::string> too_many = too_many_left_out(all, options_.max_left_out);
  for (std::size_t at = before; at < all.size() && !too_many; ++at) options_.console->note("left out: " + all[at]);
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
  if (awaited_ != key_of(batch.step, batch.pass)) return;  // withdrawn
  if (!leave_out(batch) || !trains_something(batch)) return;
  OpenUnit& open = open_[key_of(batch.step, batch.pass)];
  open.samples = batch.samples;
  open.made = batch.made;
  if (!batch.shown.empty() && options_.journal) options_.journal->made_samples(batch.shown);
  const bool alone = std::ranges::all_of(open_, [](const auto& unit) { return !unit.second.watch.planned(); });
  if (alone) open.batch_wait_ms = recorder_.batch_wait_ms();
  next_plan_.batch = batch;
  send_to(this, options_.planner, std::exchange(next_plan_, {}));
}

void Coordinator::announce_step(const StepPlanned& message) {
  if (rescue_) return;
  awaited_.reset();
  StepPlan& plan = message.planned->plan;
  OpenUnit& open = open_[key_of(plan.step, plan.pass)];
  open.watch = StepWatch(*options_.graph, message);
  std::map<caf::actor, MicroBatchOrder> orders;
  for (MicroBatchPlan& micro_batch : plan.micro_batches) {
    MicroBatchOrder& order = orders[replicas_.at(micro_batch.section)[micro_batch.replica.value()]];
    const bool repeatable = replay_ && replay_->repeatable(micro_batch.section);
    if (repeatable) order.plans.push_back(replay_->announced(micro_batch));
    // Only measured passes need the samples later.
    if (!repeatable) order.plans.push_back(options_.measure ? micro_batch : std::move(micro_batch));
  }
  for (auto& [lane, order] : orders) send_to(this, lane, std::move(order));
  send_end_of_step(open, false);
  for (const PhaseCounts::Opening& phase : open.watch.phases().first()) open_phase(plan.step, phase);
  if (plan.pass == Pass::train) recorder_.step_announced(open);
  announce();
}

void Coordinator::begin_again(const BeginAgain& moved) {
  connect(moved.directory);
  const std::vector<MicroBatchPlan> repeated = replay_->again(moved.arrivals);
  for (const auto& [key, open] : open_) {
    for (const MicroBatchPlan& batch : repeated) {
      if (key_of(batch.step, batch.pass) != key) continue;
      send_to(this, replicas_.at(batch.section)[batch.replica.value()], MicroBatchOrder{{batch}});
    }
    if (open.watch.planned()) send_end_of_step(open, true);
  }
  recorder_.seats_moved(moved.reason, repeated.size());
}

void Coordinator::open_phase(StepId step, const PhaseCounts::Opening& opening) {
  for (const auto& [section, replica] : opening.lanes) {
    send_to(this, replicas_.at(section)[replica.value()], PhaseOpen{step, opening.group, opening.phase});
  }
}

void Coordinator::phase_pass_done(const PhasePassDone& message) {
  if (rescue_) return;
  OpenUnit& open = open_.begin()->second;  // a bulk-synchronous run has a single unit open at a time
  if (const auto phase = open.watch.phases().done(message.group, message.phase)) open_phase(message.step, *phase);
}

void Coordinator::send_end_of_step(const OpenUnit& open, bool again) {
  for (const auto& [section, actors] : replicas_) {
    if (again && !replay_->repeatable(section)) continue;
    const StepBoundary end{
        StepBoundary::Kind::end_step, open.unit.step, pass_of(open.unit.kind), {}, open.watch.tokens(section)};
    for (std::uint32_t replica = 0; replica < actors.size(); ++replica) {
      if (open.replicas_done.contains({section, ReplicaIndex(replica)})) continue;
      send_to(this, actors[replica], BoundaryOrder{end});
    }
  }
}

void Coordinator::micro_batch_done(const MicroBatchDone& message) {
  if (replay_ && replay_->repeatable(message.section) &&
      !replay_->done(message.section, message.step, message.pass, message.index)) {
    return;  // repeated work (CR-5)
  }
  recorder_.micro_batch_done(open_.at(key_of(message.step, message.pass)), message);
}

void Coordinator::step_done(const StepDone& message) {
  const UnitKey key = key_of(message.step, message.pass);
  const auto found = open_.find(key);
  const bool again =
      found == open_.end() || !found->second.replicas_done.insert({message.section, message.replica}).second;
  if (again) return;  // the replica has begun anew (CR-5)
  OpenUnit& open = found->second;
  const std::pair norm_and_lr(message.gradient_norm, message.lr);  // equal on all replicas
  open.norm_and_lr.try_emplace(message.section, norm_and_lr);
  open.lanes[{message.section, message.replica}] = {message.times, message.sent, message.transfers, message.wire};
  if (++open.replicas_done_of[message.section] == replicas_.at(message.section).size()) {
    open.sections_done.insert(message.section);
    recorder_.section_ended(open, message.section, message.metrics);
  }
  if (open.replicas_done.size() == replicas_in_all_) close(key);
}

void Coordinator::norm_reported(const NormReport& report) {
  OpenUnit& open = open_.at({report.step.value(), RunUnit::Kind::train});
  const auto active = [&open](SectionId section) { return open.watch.active(section); };
  NormTotals::Answers answers = norms_.add(report, active);
  std::optional<SkippedStep> skipped;
  if (!answers.empty()) skipped = spikes_.skip(report.step, answers);
  if (skipped) open.skipped = true;
  if (skipped && skipped->failure) send_to(this, supervisor(), Failure{*skipped->failure});
  for (auto& [section, total] : answers) {
    total.skipped = skipped.has_value();
    for (const caf::actor& lane : replicas_.at(section)) send_to(this, lane, total);
  }
}

void Coordinator::close(UnitKey key) {
  OpenUnit& open = open_.at(key);
  const auto now = StepRecorder::Clock::now();
  const bool train = key.second == RunUnit::Kind::train;
  options_.figures->lanes_ended(open.lanes, train);
  if (train) {
    std::vector<StepRow> rows = recorder_.step_ended(open, now);
    spikes_.judge(rows, base_receiver());
    if (options_.measure) next_plan_ = {{}, open.watch.measured(), measured_transfers(open.lanes)};
    recorder_.keep_step(open, std::move(rows), now);
  }
  recorder_.unit_ended(open, now);
  if (replay_ && !is_checkpoint(key.second)) replay_->closed(StepId(key.first), pass_of(key.second));
  open_.erase(key);
  if (train && makes_samples()) send_to(this, options_.data_source, StepClosed{StepId(key.first)});
  RunRecord& record = *options_.record;
  record.counts.settle(open_.empty() ? record.last_step : open_.begin()->first.first - 1);
  announce();
}

void Coordinator::finish_if_done() {
  if (options_.current_step != nullptr && !open_.empty()) {
    options_.current_step->store(open_.begin()->first.first, std::memory_order_relaxed);
  }
  if (finished_ || awaited_ || !open_.empty()) return;
  if (spikes_.rollback() && !schedule_.stopped()) return go_back();
  if (!schedule_.complete()) return answer_pauses();
  finished_ = true;
  const bool next_stage = options_.next_stage && !options_.record->interrupted && !schedule_.stopped();
  if (options_.finishing && !next_stage) options_.finishing();
  const EventFields fields{{"step", last_step().value()}, {"interrupted", options_.record->interrupted}};
  options_.note_event(next_stage ? "stage_finished" : "finished", fields);
  answer_pauses();
  send_to(this, supervisor(), Finish{next_stage});
}

void Coordinator::announce_checkpoint(const RunUnit& unit) {
  // Lanes receive the boundary before work of the next step (CR-1).
  const Result<StepBoundary> boundary = checkpoints_.begin(unit, options_.trained_until);
  if (!boundary) {
    send_to(this, supervisor(),
            Failure{"checkpoint of step " + std::to_string(unit.step.value()) + ": " + boundary.error().message});
    return;
  }
  for (const auto& [section, actors] : replicas_) {
    for (const caf::actor& lane : actors) send_to(this, lane, BoundaryOrder{*boundary});
  }
  if (checkpoints_.complete(unit)) commit(unit);  // no section is trained
}

void Coordinator::snapshot_written(const SnapshotWritten& written) {
  const RunUnit unit = checkpoint_unit(written.step, written.shadow);
  checkpoints_.add_part(written);
  if (checkpoints_.complete(unit)) commit(unit);
}

void Coordinator::commit(const RunUnit& unit) {
  const auto done = [self = caf::actor_cast<caf::actor>(this)](const CheckpointCommitted& committed) {
    send_from_outside(self, committed);
  };
  const auto failed = [supervisor = supervisor(), step = unit.step](const std::string& problem) {
    send_from_outside(supervisor, Failure{"checkpoint of step " + std::to_string(step.value()) + ": " + problem});
  };
  checkpoints_.commit(unit, done, failed);
}

void Coordinator::committed(const CheckpointCommitted& committed) {
  const UnitKey key = key_of(checkpoint_unit(committed.step, committed.shadow));
  const bool rescues = rescue_ && rescue_->makes(key);
  checkpoints_.committed(committed, rescues || !rescue_ || !rescue_->written());  // a rescue's checkpoint is newer
  if (rescues) rescue_->end();
  if (!committed.shadow) requests_.answer_checkpoints(committed);
  close(key);
}

SpikeResponse::Kept Coordinator::base_receiver() {
  return [self = caf::actor_cast<caf::actor>(this)](const SpikeBase& base) { send_from_outside(self, base); };
}

void Coordinator::base_kept(const SpikeBase& base) {
  if (!finished_ && spikes_.base_kept(base) && began_) announce();
}

void Coordinator::go_back() {
  if (options_.record->rollback) return;
  options_.record->rollback = spikes_.rollback();
  send_to(this, supervisor(), Failure{.message = spikes_.rollback()->cause, .goes_back = true});
}

caf::result<Rescued> Coordinator::rescue(const Rescue& loss) {
  const bool going_on = began_ && !finished_ && !schedule_.stopped() && !rescue_;
  if (!going_on || !options_.schedule.keeps_state) return Rescued{};
  const std::vector<caf::actor> survivors = trained_survivors(*options_.graph, *directory_, loss.lost);
  if (survivors.empty()) return Rescued{};
  const caf::response_promise answer = make_response_promise<Rescued>();
  rescue_.emplace(options_, loss.lost, survivors.size(), answer);
  for (const caf::actor& replica : survivors) {
    request(replica, standing_limit, StandStill{})
        .then(
            [this, replica](const StandsStill& still) {
              if (rescue_->add_answer(still, replica)) write_rescued();
            },
            [this](const caf::error&) {
              if (rescue_->skip_answer()) write_rescued();
            });
  }
  return answer;
}

void Coordinator::write_rescued() {
  for (const StepDone& end : rescue_->missing_ends(open_, *directory_)) step_done(end);
  const auto checkpoint = rescue_->checkpoint(open_, schedule_, checkpoints_.newest());
  if (!checkpoint) return rescue_->end();
  const Result<StepBoundary> boundary = checkpoints_.begin(checkpoint->unit, checkpoint->ahead);
  if (!boundary) return rescue_->end();
  rescue_->begin(*checkpoint);
  open_[key_of(checkpoint->unit)].unit = checkpoint->unit;
  for (const caf::actor& writer : checkpoint->writers) send_to(this, writer, BoundaryOrder{*boundary});
}

RunState Coordinator::state() const {
  if (finished_) return RunState::finished;
  if (schedule_.stopped()) return RunState::stopping;
  if (schedule_.paused()) return open_.empty() ? RunState::paused : RunState::pausing;
  return began_ ? RunState::running : RunState::starting;
}

StepId Coordinator::last_step() const {
  return StepId(std::max(options_.record->last_step, options_.schedule.first_step - 1));
}

RunStatus Coordinator::status() const {
  RunStatus status;
  recorder_.describe(status);
  status.state = state();
  status.last_step = last_step().value();
  if (schedule_.stopped()) status.stops_after = schedule_.last_step();
  status.position = options_.cursor.position(status.last_step + 1, static_cast<std::uint64_t>(options_.global_batch));
  for (const auto& [key, open] : open_) {
    status.units.push_back(open.unit);
    if (!status.planned) status.planned = open.watch.planned();
  }
  status.announced = began_ && !rescue_ && (finished_ || !open_.empty());
  if (options_.events != nullptr) status.events = options_.events->load(std::memory_order_relaxed);
  if (awaits_samples()) {
    status.waiting = "process 0 waits for samples of section '" + options_.generator + "'";
  } else if (awaited_) {
    status.working = "process 0 reads and plans the next batch";
  }
  if (options_.snapshots->busy()) status.working = "process 0 writes a checkpoint or the record";
  status.directory = directory_;
  return status;
}

caf::result<CheckpointAnswer> Coordinator::checkpoint_requested() {
  if (!options_.schedule.keeps_state) {
    return CheckpointAnswer{{}, {}, "emulated devices train nothing, so a checkpoint would be empty"};
  }
  if (finished_) return CheckpointAnswer{{}, {}, "the run is at its end"};
  const std::optional<StepId> step = schedule_.request_checkpoint();
  if (!step) return CheckpointAnswer{{}, {}, "no step has been trained yet"};
  if (checkpoints_.stored() == step) return CheckpointAnswer{*step, options_.record->checkpoint, {}};
  const caf::response_promise promise = make_response_promise();
  requests_.await_checkpoint(*step, promise);
  announce();
  return promise;
}

caf::result<PauseAnswer> Coordinator::pause_requested(const PauseRequest& request) {
  if (request.pause) {
    schedule_.pause();
    options_.record->pause_after = schedule_.last_step();  // the pause outlives a lost process (CR-8)
    answer_pauses();
  } else {
    options_.record->pause_after.reset();
    resume_run();
  }
  if (state() != RunState::pausing) return PauseAnswer{state(), last_step()};
  const caf::response_promise promise = make_response_promise();
  requests_.await_pause(promise);
  return promise;
}

void Coordinator::interrupt(const std::string& reason) {
  if (finished_) return;  // it has ended by itself
  withdraw_step();
  if (!std::exchange(options_.record->interrupted, true))
    options_.console->note(stop_line(reason, schedule_.last_step(), options_.schedule));
  schedule_.stop();
  if (began_) announce();  // otherwise at Begin, when all processes are connected
  answer_pauses();
}

bool Coordinator::awaits_samples() const {
  return makes_samples() && awaited_ && awaited_->second == RunUnit::Kind::train &&
         open_.at(*awaited_).samples.empty();  // otherwise it is being planned
}

void Coordinator::withdraw_step() {
  if (!awaits_samples()) return;
  send_to(this, options_.data_source, BatchWithdrawn{StepId(awaited_->first)});
  open_.erase(*awaited_);
  awaited_.reset();
  schedule_.withdraw();
}

void Coordinator::resume_run() {
  if (spikes_.rollback()) return;
  const bool was_paused = schedule_.paused(), stood_still = state() == RunState::paused;
  schedule_.resume();
  pause_noted_ = false;
  if (!was_paused) return;
  if (stood_still) recorder_.restart_clocks();
  if (began_) announce();
  answer_pauses();
}

void Coordinator::answer_pauses() {
  if (state() == RunState::pausing) return;
  if (state() == RunState::paused && began_ && !spikes_.rollback() && !std::exchange(pause_noted_, true)) {
    options_.console->note("paused after step " + std::to_string(last_step().value()) +
                           "; `maestro continue` continues the run");
  }
  requests_.answer_pauses({state(), last_step()});
}

}  // namespace maestro
