// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/section_replica.hpp"

#include <algorithm>

#include "actors/messages/wait_text.hpp"
#include "actors/replica/replica_waits.hpp"

namespace maestro {

namespace {

LaneOptions lane_options(const ReplicaSpec& spec) {
  const GraphNode& node = spec.graph->node(spec.section);
  return {node.runs_backward(), spec.graph->splits_passes(spec.section), node.max_in_flight};
}

ExchangeOutbox exchange_outbox(SectionReplica& replica) {
  ExchangeOutbox outbox;
  outbox.hand_over = [&replica](const caf::actor& to, ShardHandOver shard) { send_to(&replica, to, shard); };
  outbox.shard_read = [&replica](const caf::actor& to, ShardRead read) { send_to(&replica, to, read); };
  outbox.ready = [&replica](const caf::actor& to, ReductionReady ready) { send_to(&replica, to, ready); };
  outbox.rows_sent = [&replica](const caf::actor& to, RowsSent sent) { send_to(&replica, to, sent); };
  // An address, not a handle: the replica keeps the exchanges, and a handle in them would keep the replica.
  outbox.broken = [self = caf::actor_cast<caf::actor_addr>(&replica)](const std::string& message) {
    if (const auto alive = caf::actor_cast<caf::actor>(self)) send_from_outside(alive, TransferBroken{message});
  };
  return outbox;
}

/// `due` collects credits until the end of the message.
Outbox outbox_of(SectionReplica& replica, ReplicaTrace& trace, std::map<caf::actor, Credits>& due) {
  Outbox outbox;
  outbox.hand_over = [&replica](const caf::actor& to, PieceHandOver piece) { send_to(&replica, to, std::move(piece)); };
  outbox.credit = [&due](const caf::actor& to, const Credit& credit) { due[to].rings.push_back(credit); };
  if (trace.on()) outbox.transferred = [&trace](const Transfer& transfer) { trace.transferred(transfer); };
  return outbox;
}

}  // namespace

SectionReplica::SectionReplica(caf::actor_config& config, ReplicaSpec spec)
    : RunActor(config, spec.supervisor),
      spec_(std::move(spec)),
      ranks_(spec_, caf::actor_cast<caf::actor>(this)),
      lane_(lane_options(spec_)),
      publisher_(spec_, caf::actor_cast<caf::actor>(this)),
      settled_(spec_.trained_until) {}

ReplicaAddress SectionReplica::address() {
  ReplicaAddress address;
  address.section = spec_.section;
  address.replica = spec_.replica;
  address.process = spec_.process;
  address.actor = caf::actor_cast<caf::actor>(this);
  for (const auto& rank : ranks_) {
    std::ranges::copy(rank->ports().rings(), std::back_inserter(address.rings));
    std::ranges::copy(rank->reductions().addresses(), std::back_inserter(address.reductions));
  }
  if (spec_.replica == ReplicaIndex(0)) address.weights = publisher_.blocks();
  return address;
}

void SectionReplica::on_exit() {
  RunActor::on_exit();
  spec_.supervisor = nullptr;
  coordinator_ = nullptr;
  snapshot_.reset();  // refers to this actor
  standing_ = {};     // refers to this actor
  publisher_.leave();
  for (const auto& rank : ranks_) {
    rank->ports().leave();
    rank->reductions().leave();
  }
}

caf::behavior SectionReplica::make_behavior() {
  return {
      [this](AddressRequest) { return address(); },
      [this](const Directory& directory) { connect(directory); },
      [this](MicroBatchOrder& order) {
        for (MicroBatchPlan& plan : order.plans) {
          check(ranks_.expect(plan, [this](LayoutRank rank) { return arrived(rank); }));
          lane_.enqueue(std::move(plan));
        }
        pump();
      },
      [this](StandStill) { return stand_still(); },
      [this](const BoundaryOrder& order) {
        if (still_) return write_now(order.mark);
        lane_.enqueue(order.mark);
        pump();
      },
      [this](const PieceHandOver& piece) {
        check(ranks_.at(piece.layout_rank).ports().handed_over(piece, arrived(piece.layout_rank)));
        pump();
      },
      [this](const RingEvent& event) {
        check(ranks_.landed(event.immediate, [this](LayoutRank rank) { return arrived(rank); }));
        pump();
      },
      [this](const Credits& credits) {
        check(ranks_.credit(credits));
        for (const Credit& credit : credits.rings) check(publisher_.credit(credit));
        pump();
      },
      [this](BufferFree) { pump(); },
      [this](const WriteFinished& finished) {
        if (!publisher_.write_ended(finished.cookie)) ranks_.write_finished(finished.cookie);
        pump();
      },
      [this](const CopyFinished& finished) {
        check(ranks_.copied(finished));
        pump();
      },
      [this](const VersionsWanted& wanted) {
        const auto generator = caf::actor_cast<caf::actor>(current_sender());
        check(publisher_.add(wanted, generator));
        send_to(this, generator, VersionsPromised{});
      },
      [this](const WriteBroken& broken) {
        if (publisher_.write_ended(broken.cookie)) return delayed_send(this, patience(), WriteDoubted{broken});
        send_to(this, spec_.supervisor, TransferBroken{where() + ": " + broken.message});
      },
      [this](const WriteDoubted& doubted) {
        if (!publisher_.still_writes(doubted.broken.cookie)) return;
        send_to(this, spec_.supervisor, TransferBroken{where() + ": " + doubted.broken.message});
      },
      [this](const TransferBroken& broken) {
        send_to(this, spec_.supervisor, TransferBroken{where() + ": " + broken.message});
      },
      [this](const ShardHandOver& shard) {
        ranks_.at(shard.layout_rank).reductions().handed_over(shard);
        pump();
      },
      [this](const ShardRead& read) {
        ranks_.at(read.layout_rank).reductions().shard_read(read);
        pump();
      },
      [this](const ReductionReady& ready) {
        ranks_.at(ready.layout_rank).reductions().ready(ready);
        pump();
      },
      [this](const RowsSent& sent) {
        ranks_.at(sent.layout_rank).reductions().rows_sent(sent);
        pump();
      },
      [this](const PhaseOpen& open) {
        lane_.open_phase(open.step, open.group, open.phase);
        pump();
      },
      [this](const NormTotal& total) {
        norm_total_ = total;
        take_total();
      },
      [this](const WorkDone& result) { rank_done(result); },
      [this](const Failure& failure) { fail(failure.message, failure.service_lost); },
      [this](StatusRequest) { return status(); },
      [this](Retire) { retire(); },
      [this](const RenewInputs& renewal) { return renew_inputs(renewal.epoch); },
      [this](const PlacementsMoved& moved) {
        for (const auto& rank : ranks_) rank->ports().connect_renewed(moved.directory);
      },
  };
}

caf::invoke_message_result SectionReplica::consume(caf::mailbox_element& message) {
  const caf::invoke_message_result result = RunActor::consume(message);
  for (auto& [sender, credits] : std::exchange(credits_, {})) send_to(this, sender, std::move(credits));
  return result;
}

void SectionReplica::connect(const Directory& directory) {
  coordinator_ = directory.coordinator;
  publisher_.connect(directory, outbox_of(*this, ranks_.first().trace(), credits_));
  const ExchangeOutbox reductions = exchange_outbox(*this);
  for (const auto& rank : ranks_) {
    rank->ports().connect(directory, outbox_of(*this, rank->trace(), credits_));
    rank->reductions().connect(directory, reductions);
  }
}

void SectionReplica::retire() {
  coordinator_ = nullptr;
  if (spec_.turns != nullptr) spec_.turns->open();  // nothing takes the turns that it leaves
  for (const auto& rank : ranks_) rank->ports().leave();
  const auto rank_ended = [this] { ranks_.job_ended(); };
  ignore_other_messages(
      this, {[rank_ended](const WorkDone&) { rank_ended(); }, [rank_ended](const Failure&) { rank_ended(); },
             [rank_ended](const TransferBroken&) { rank_ended(); },
             [this](MemoryDue) { ranks_.working() ? await_release() : ranks_.clear(); }});
  await_release();
}

void SectionReplica::await_release() {
  delayed_send(this, patience(), MemoryDue{});
}

InputsRenewed SectionReplica::renew_inputs(Epoch epoch) {
  InputsRenewed renewed;
  for (const auto& rank : ranks_) {
    std::ranges::move(rank->ports().renew_inputs(epoch), std::back_inserter(renewed.arrivals));
    rank->route(caf::actor_cast<caf::actor>(this));
  }
  renewed.address = address();
  return renewed;
}

ReplicaPorts::Arrived SectionReplica::arrived(LayoutRank layout_rank) {
  return
      [this, layout_rank](Channel channel, std::uint64_t sequence) { lane_.arrived(channel, sequence, layout_rank); };
}

void SectionReplica::pump() {
  ++events_;
  if (failed_ || still_) return;
  if (busy_) return continue_action();
  const std::optional<Work> next = lane_.next(ranks_.buffers_free());
  if (!next) return idle();
  note_wait();
  start(*next);
}

void SectionReplica::start(const Work& work) {
  work_ = work;
  busy_ = true;
  switch (work.kind) {
    case ReplicaLane::Kind::forward:
      return start_pass(work, true, false);
    case ReplicaLane::Kind::forward_backward:
      return start_pass(work, true, true);
    case ReplicaLane::Kind::backward:
      return start_pass(work, false, true);
    case ReplicaLane::Kind::mark:
      return start_boundary(work.mark);
  }
}

void SectionReplica::start_pass(const Work& work, bool forward, bool backward) {
  const Clock::time_point now = Clock::now();
  passes_.began(now);
  clock_.runs_pass(now);
  const SharedMicroBatch& plan = work.batch;
  step_ = plan->step;
  if (spec_.current_step != nullptr) spec_.current_step->store(step_.value(), std::memory_order_relaxed);
  std::vector<std::pair<TracedWork, Job>> jobs;
  for (const auto& rank : ranks_) {
    Result<Job> job = rank->pass(plan, forward, backward);
    if (!job) return fail(job.error().message);
    jobs.emplace_back(rank->traced_pass(*plan, forward, backward), std::move(*job));
  }
  emulated_ = spec_.emulated.of(*plan, forward, backward);
  const std::chrono::duration<double, std::milli> lasts(emulated_ ? emulated_->forward + emulated_->backward : 0);
  ranks_.submit(std::move(jobs), std::chrono::duration_cast<std::chrono::nanoseconds>(lasts), &work_);
}

void SectionReplica::rank_done(const WorkDone& result) {
  ++events_;
  if (still_ && !standing_.pending()) return;
  if (exchanging()) {
    // A checkpoint's exchange is not work at the end of the step. Ranks run at once.
    const bool of_step = waits_for().kind != WaitKind::moments;
    if (of_step) clock_.worked_meanwhile(result.device_ms / static_cast<double>(ranks_.size()), Clock::now());
    ranks_.at(result.layout_rank).reductions().job_done();
    return continue_action();
  }
  if (!ranks_.working()) return fail("a job finished that was never started");
  if (ranks_.add(result)) done();
}

void SectionReplica::done() {
  WorkDone& all = ranks_.gathered();
  if (work_.kind == ReplicaLane::Kind::mark) {
    clock_.work_ended(all.device_ms, Clock::now());
    return action_done();
  }
  const PassCost took = emulated_.value_or(PassCost{all.forward_ms, all.backward_ms});
  clock_.work_ended(took.forward + took.backward, Clock::now());
  passes_.finished(std::move(all.metrics), took);
  pass_done();
}

void SectionReplica::pass_done() {
  const MicroBatchPlan& plan = *work_.batch;
  for (const auto& rank : ranks_) check(rank->send(plan));
  const SharedMicroBatch retired = lane_.finished();
  phase_pass_done(plan, work_.kind);
  if (!retired) {
    passes_.keep(plan.index);
  } else {
    for (const auto& rank : ranks_) check(rank->ports().release(plan));
    send_to(this, coordinator_, passes_.retire(plan, Clock::now()));
  }
  busy_ = false;
  pump();
}

void SectionReplica::phase_pass_done(const MicroBatchPlan& plan, ReplicaLane::Kind kind) {
  if (!plan.phased) return;
  const bool backward = kind == ReplicaLane::Kind::backward;
  send_to(this, coordinator_,
          PhasePassDone{plan.step, plan.group, backward ? plan.backward_phase : plan.forward_phase});
}

void SectionReplica::note_action() {
  const WaitingFor waiting = waits_for();
  const Clock::time_point now = Clock::now();
  if (waiting.kind != WaitKind::nothing) return clock_.waits(name_of(waiting.kind), now);
  waiting.doing == "step" ? clock_.ends_step(now) : clock_.waits(waiting.doing, now);
}

void SectionReplica::idle() {
  const WaitingFor waiting = waits_for();
  const Clock::time_point now = Clock::now();
  clock_.waits(lane_wait(waiting, *spec_.graph), now);
  if (!ranks_.first().trace().on() || idle_since_ || lane_.idle()) return;
  idle_since_ = now;
  idle_reason_ = wait_text(waiting, *spec_.graph);
}

void SectionReplica::note_wait() {
  if (!idle_since_) return;
  ranks_.first().trace().waited(*idle_since_, idle_reason_);
  idle_since_.reset();
}

WaitingFor SectionReplica::status() const {
  WaitingFor answer = waits_for();
  answer.events = events_;
  const bool idle = answer.kind == WaitKind::work;
  if (idle && spec_.snapshots != nullptr && spec_.snapshots->busy()) {
    answer.kind = WaitKind::nothing;
    answer.doing = "checkpoint";
  }
  return answer;
}

WaitingFor SectionReplica::waits_for() const {
  if (!busy_) return idle_wait(spec_, lane_, ranks_, step_);
  if (work_.kind != ReplicaLane::Kind::mark) return running_pass(spec_, ranks_, work_, step_);
  return running_action(spec_, step_end_.current().value_or(StepAction::report), step_);
}

std::string SectionReplica::where() const {
  return "section '" + node().name + "' replica " + std::to_string(spec_.replica.value()) + ", step " +
         std::to_string(step_.value());
}

void SectionReplica::check(const Status& status) {
  if (!status) fail(status.error().message);
}

void SectionReplica::fail(const std::string& message, bool service_lost) {
  if (failed_) return;
  failed_ = true;
  report(message, service_lost);
}

}  // namespace maestro
