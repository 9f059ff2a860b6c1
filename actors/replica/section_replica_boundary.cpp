// SPDX-License-Identifier: Apache-2.0
// The actions of a section replica at a StepBoundary (StepEnd): at a step's end the gradient sum, the norm and the
// optimizer step; at a snapshot the copy of the state for a checkpoint.
#include <algorithm>
#include <cmath>

#include "actors/replica/section_replica.hpp"

namespace maestro {

namespace {

RankJob add_over_ranks(ReplicaRank& rank) {
  return [runner = rank.runner()] {
    runner->add_over_ranks();
    return WorkResult();
  };
}

RankJob spread_to_parts(ReplicaRank& rank) {
  return [runner = rank.runner()] {
    runner->spread_to_parts();
    return WorkResult();
  };
}

/// Returns the job of an action that only takes time.
RankJob nothing(ReplicaRank& /*rank*/) {
  return [] { return WorkResult(); };
}

/// Returns the job of the norm. `all`: flat gradients count, too, not only rows of tables.
RankJob sum_of_squares(ReplicaRank& rank, bool all) {
  return [runner = rank.runner(), all] {
    PendingSum squares;
    if (all) {
      squares = runner->gradient_sum_of_squares();
    } else {
      squares.add(runner->row_sum_of_squares());
    }
    return WorkResult(std::function<WorkDone()>([sum = std::move(squares)] {
      WorkDone result;
      result.sum_of_squares = sum.get();
      return result;
    }));
  };
}

/// Returns a job's result: the learning rate, and the figures when they are known.
WorkResult with_figures(PassMetrics figures, double lr) {
  return WorkResult(std::function<WorkDone()>([figures = std::move(figures), lr] {
    WorkDone result;
    result.lr = lr;
    for (const MetricSum& each : figures.get()) result.metrics.push_back({each.name, each.sum, each.weight});
    return result;
  }));
}

/// Adds the results of an action that changes values.
void add_results(WorkDone& end, const WorkDone& action) {
  end.lr = std::max(end.lr, action.lr);
  if (!action.metrics.empty()) end.metrics = action.metrics;
}

RankJob load_values(ReplicaRank& rank) {
  return [runner = rank.runner()] {
    runner->section().parameters().load_gathered_values(*runner->context().ops);
    return with_figures(runner->step_figures(), 0);
  };
}

RankJob clear_gradients(ReplicaRank& rank) {
  return [runner = rank.runner()] {
    runner->section().parameters().clear_gradients(*runner->context().ops);
    return WorkResult();
  };
}

/// Returns the optimizer's job. `norm`: norm of all gradients that are clipped together.
RankJob optimizer_step(ReplicaRank& rank, const StepBoundary& mark, double norm) {
  return [runner = rank.runner(), step = mark.step, norm, tokens = mark.tokens]() -> Result<WorkResult> {
    const Result<OptimizerStep> stepped = runner->step(step, norm, tokens);
    if (!stepped) return stepped.error();
    const bool shares = runner->section().parameters().optimizer_sharded();
    return with_figures(shares ? PassMetrics() : runner->step_figures(), stepped->lr);
  };
}

/// Returns whether each replica counts only a part of the gradients in its norm.
bool norms_in_parts(const StepEnd& end) {
  return end.contains(StepAction::sum_to_shards) || end.contains(StepAction::merge_rows);
}

/// Returns the jobs of the norm. Every replica counts its rows and its shard; other flat gradients replica 0 counts.
std::function<RankJob(ReplicaRank&)> norm_of(const StepEnd& end, ReplicaIndex replica) {
  const bool all = !norms_in_parts(end) || end.contains(StepAction::sum_to_shards) || replica == ReplicaIndex(0);
  return [all](ReplicaRank& rank) { return sum_of_squares(rank, all); };
}

/// Returns whether other replicas train the section's tables by rows, too.
bool exchanges_rows(const GraphNode& node, SectionRunner& runner) {
  return node.replicas > 1 && !runner.section().parameters().row_tables().empty();
}

/// Returns whether the optimizer's step alone completes the state of the replica.
bool ends_step_at_once(const GraphNode& node, SectionRunner& runner) {
  return !runner.section().parameters().optimizer_sharded() && !exchanges_rows(node, runner);
}

StepEndOptions step_end_options(const ReplicaSpec& spec, const ReplicaRanks& ranks, bool publishes) {
  const GraphNode& node = spec.graph->node(spec.section);
  SectionRunner& runner = *ranks.first().runner();
  StepEndOptions options;
  options.trained = node.trained();
  options.ranks = ranks.size();
  options.spreads = node.mixed() && node.contexts[spec.replica.value()] > 1;
  options.fetches = runner.section().fetches_gradients();
  options.tied = node.stages > 1 && runner.tied() != nullptr;
  options.timed_sum = spec.emulated.sum > std::chrono::nanoseconds(0);
  options.optimizer_sharded = runner.section().parameters().optimizer_sharded();
  options.exchanges_rows = exchanges_rows(node, runner);
  options.awaits_total = spec.joined_norms || node.stages > 1;
  options.writes_snapshot = spec.replica == ReplicaIndex(0);
  options.publishes = publishes;
  return options;
}

}  // namespace

void SectionReplica::start_boundary(const StepBoundary& boundary) {
  step_ = boundary.step;
  sum_of_squares_ = 0;
  end_ = {};
  step_end_ = StepEnd(step_end_options(spec_, ranks_, publisher_.sends()), boundary);
  if (step_end_.contains(StepAction::write)) {
    snapshot_.emplace(spec_, boundary, caf::actor_cast<caf::actor>(this), coordinator_, publisher_.kept(boundary.step));
  }
  start_action();
}

void SectionReplica::start_action() {
  const std::optional<StepAction> action = step_end_.current();
  if (!action) return boundary_passed();
  if (still_ && *action != StepAction::report) return;
  note_action();
  if (is_exchange(*action)) {
    for (const auto& rank : ranks_) rank->reductions().begin(*action);
    return continue_action();
  }
  switch (*action) {
    case StepAction::add_ranks:
      return ranks_.submit("add ranks", step_, add_over_ranks);
    case StepAction::spread:
      return ranks_.submit("spread", step_, spread_to_parts);
    case StepAction::timed_sum:
      return ranks_.submit("sum", step_, nothing, spec_.emulated.sum);
    case StepAction::norm:
      return ranks_.submit("norm", step_, norm_of(step_end_, spec_.replica));
    case StepAction::await_total:
      report_norm();
      return take_total();
    case StepAction::step:
      return ranks_.submit(
          "step", step_,
          [this](ReplicaRank& rank) { return optimizer_step(rank, work_.mark, std::sqrt(clipped_sum_of_squares_)); },
          spec_.emulated.step);
    case StepAction::load_values:
      return ranks_.submit("take", step_, load_values);
    case StepAction::copy_first_moments:
      return ranks_.submit_first("snapshot", step_, snapshot_->load_gathered_moments(ParameterBuffer::first_moments));
    case StepAction::copy_second_moments:
      return ranks_.submit_first("snapshot", step_, snapshot_->load_gathered_moments(ParameterBuffer::second_moments));
    case StepAction::write:
      ranks_.submit_first("snapshot", step_, snapshot_->write());
      return snapshot_.reset();
    case StepAction::clear:
      return ranks_.submit("clear", step_, clear_gradients);
    case StepAction::publish:
      return publish();
    default:
      return report_step();
  }
}

void SectionReplica::action_done() {
  if (step_end_.at(StepAction::norm)) sum_of_squares_ = clipped_sum_of_squares_ = ranks_.gathered().sum_of_squares;
  if (step_end_.at(StepAction::step) || step_end_.at(StepAction::load_values)) add_results(end_, ranks_.gathered());
  if (step_end_.at(StepAction::publish)) check(publisher_.send());
  step_end_.advance();
  start_action();
}

bool SectionReplica::exchanging() const {
  const std::optional<StepAction> action = step_end_.current();
  return action && is_exchange(*action);
}

void SectionReplica::publish() {
  if (!publisher_.begin(StepId(step_.value() + 1))) return;  // BufferFree continues
  ranks_.submit("publish", step_, [this](ReplicaRank& rank) { return publisher_.copy(rank); });
}

void SectionReplica::continue_action() {
  if (still_) return;
  if (step_end_.at(StepAction::publish) && !ranks_.working()) return publish();
  if (exchanging() && ranks_.continue_exchange(step_)) action_done();
}

void SectionReplica::report_norm() {
  if (!norms_in_parts(step_end_) && spec_.replica != ReplicaIndex(0)) return;  // all replicas have the same sum
  const auto reporters = static_cast<std::uint32_t>(norms_in_parts(step_end_) ? node().replicas : 1);
  send_to(this, coordinator_, NormReport{spec_.section, spec_.replica, reporters, step_, sum_of_squares_});
}

void SectionReplica::take_total() {
  // If only replica 0 reports its section, the total may arrive while another replica still computes its norm.
  if (!step_end_.at(StepAction::await_total) || !norm_total_ || norm_total_->step != step_) return;
  sum_of_squares_ = norm_total_->sum_of_squares_of_section;
  clipped_sum_of_squares_ = norm_total_->sum_of_squares;
  if (norm_total_->skipped) step_end_.skip_step();
  action_done();
}

void SectionReplica::report_step() {
  if (work_.mark.pass == Pass::train) settled_ = std::max(settled_, step_);
  if (standing_.pending()) standing_.deliver(stands_still());
  StepDone done{spec_.section, spec_.replica, step_, work_.mark.pass, std::sqrt(sum_of_squares_),
                end_.lr,       end_.metrics};
  done.times = clock_.take(Clock::now());
  for (const auto& rank : ranks_) rank->report(done);
  send_to(this, coordinator_, std::move(done));
  action_done();
}

caf::result<StandsStill> SectionReplica::stand_still() {
  still_ = true;
  const bool changes = ranks_.working() && step_end_.at(StepAction::step);
  if (!changes) return stands_still();
  standing_ = make_response_promise<StandsStill>();
  return standing_;
}

StandsStill SectionReplica::stands_still() {
  const bool complete = ends_step_at_once(node(), *ranks_.first().runner());
  return {spec_.section, spec_.replica, settled_, complete && !failed_ && !publisher_.lacks_versions()};
}

void SectionReplica::write_now(const StepBoundary& snapshot) {
  ranks_.submit_first(
      "snapshot", step_,
      ReplicaSnapshot(spec_, snapshot, caf::actor_cast<caf::actor>(this), coordinator_, publisher_.kept(snapshot.step))
          .write());
}

void SectionReplica::boundary_passed() {
  (void)lane_.finished();
  busy_ = false;
  pump();
}

}  // namespace maestro
