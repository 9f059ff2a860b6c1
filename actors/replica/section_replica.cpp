// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/section_replica.hpp"

#include <algorithm>

#include "actors/messages/wait_text.hpp"
#include "actors/services/write_cookie.hpp"
#include "runtime/device/emulated_device.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

namespace {

LaneOptions lane_options(const ReplicaSpec& spec) {
  const GraphNode& node = spec.graph->node(spec.section);
  return {node.runs_backward(), spec.graph->awaits_gradient(spec.section), node.max_in_flight};
}

/// Metrics of ranks add up; a pass takes as long as its slowest rank.
void add_to(WorkDone& all, const WorkDone& one) {
  for (const Metric& metric : one.metrics) {
    const auto same = std::ranges::find(all.metrics, metric.name, &Metric::name);
    if (same == all.metrics.end()) {
      all.metrics.push_back(metric);
    } else {
      same->sum += metric.sum;
      same->weight += metric.weight;
    }
  }
  all.sum_of_squares += one.sum_of_squares;
  all.lr = one.lr;
  all.forward_ms = std::max(all.forward_ms, one.forward_ms);
  all.backward_ms = std::max(all.backward_ms, one.backward_ms);
}

}  // namespace

SectionReplica::SectionReplica(caf::actor_config& config, ReplicaSpec spec)
    : RunActor(config, spec.supervisor),
      spec_(std::move(spec)),
      lane_(lane_options(spec_)),
      settled_(spec_.trained_until) {
  const caf::actor self = caf::actor_cast<caf::actor>(this);
  for (std::uint32_t rank = 0; rank < spec_.ranks.size(); ++rank) {
    // A weak reference: if the run ends early, buffers and copies outlive the actor.
    const auto weak = caf::actor_cast<caf::actor_addr>(this);
    PortEvents events;
    events.buffer_free = [weak] {
      if (const auto alive = caf::actor_cast<caf::actor>(weak)) send_from_outside(alive, BufferFree{});
    };
    events.copied = [weak](std::uint64_t cookie, const std::string& failure) {
      if (const auto alive = caf::actor_cast<caf::actor>(weak)) send_from_outside(alive, CopyFinished{cookie, failure});
    };
    ranks_.push_back(std::make_unique<ReplicaRank>(spec_, LayoutRank(rank), std::move(events)));
    ranks_.back()->route(self);
  }
}

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
  return address;
}

void SectionReplica::on_exit() {
  RunActor::on_exit();
  spec_.supervisor = nullptr;
  coordinator_ = nullptr;
  snapshot_.reset();  // it refers to this actor
  standing_ = {};     // likewise
  for (const auto& rank : ranks_) {
    rank->ports().leave();
    rank->reductions().leave();
  }
}

caf::behavior SectionReplica::make_behavior() {
  return {
      [this](AddressRequest) { return address(); },
      [this](const Directory& directory) { connect(directory); },
      [this](MicroBatchOrder& token) {
        for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
          check(ranks_[rank]->ports().expect(token.plan, arrived(LayoutRank(rank))));
        }
        lane_.enqueue(std::move(token.plan));
        pump();
      },
      [this](StandStill) { return stand_still(); },
      [this](const BoundaryOrder& token) {
        if (still_) return write_now(token.mark);
        lane_.enqueue(token.mark);
        pump();
      },
      [this](const PieceHandOver& piece) {
        check(ranks_[piece.layout_rank.value()]->ports().handed_over(piece, arrived(piece.layout_rank)));
        pump();
      },
      [this](const RingEvent& event) {
        ring_event(event.immediate);
        pump();
      },
      [this](const Credit& credit) {
        for (const auto& rank : ranks_) check(rank->ports().credit(credit));
        pump();
      },
      [this](BufferFree) { pump(); },
      [this](const WriteFinished& finished) {
        write_finished(finished.cookie);
        pump();
      },
      [this](const CopyFinished& finished) {
        for (const auto& rank : ranks_) {
          if (owns(*rank, finished.cookie)) check(rank->ports().copied(finished.cookie, finished.failure));
        }
        pump();
      },
      [this](const WriteBroken& broken) {
        send_to(this, spec_.supervisor, TransferBroken{where() + ": " + broken.message});
      },
      [this](const TransferBroken& broken) {
        send_to(this, spec_.supervisor, TransferBroken{where() + ": " + broken.message});
      },
      [this](const ShardHandOver& shard) {
        ranks_[shard.layout_rank.value()]->reductions().handed_over(shard);
        pump();
      },
      [this](const ShardRead& read) {
        ranks_[read.layout_rank.value()]->reductions().shard_read(read);
        pump();
      },
      [this](const ReductionReady& ready) {
        ranks_[ready.layout_rank.value()]->reductions().ready(ready);
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
      [this](WorkDone& result) { rank_done(std::move(result)); },
      [this](const Failure& failure) { fail(failure.message, failure.service_lost); },
      [this](StatusRequest) { return status(); },
      [this](Retire) { retire(); },
      [this](const RenewInputs& renewal) { return renew_inputs(renewal.epoch); },
      [this](const SeatsMoved& moved) {
        for (const auto& rank : ranks_) rank->ports().connect_renewed(moved.directory);
      },
  };
}

void SectionReplica::connect(const Directory& directory) {
  coordinator_ = directory.coordinator;
  ExchangeOutbox reductions;
  reductions.hand_over = [this](const caf::actor& to, ShardHandOver shard) { send_to(this, to, shard); };
  reductions.shard_read = [this](const caf::actor& to, ShardRead read) { send_to(this, to, read); };
  reductions.ready = [this](const caf::actor& to, ReductionReady ready) { send_to(this, to, ready); };
  // Not a handle: this actor keeps the exchanges, and would never be freed.
  reductions.broken = [self = caf::actor_cast<caf::actor_addr>(this)](const std::string& message) {
    if (const auto alive = caf::actor_cast<caf::actor>(self)) send_from_outside(alive, TransferBroken{message});
  };
  for (const auto& rank : ranks_) {
    Outbox outbox;
    outbox.hand_over = [this](const caf::actor& to, PieceHandOver piece) { send_to(this, to, std::move(piece)); };
    if (rank->trace().on()) {
      outbox.transferred = [&trace = rank->trace()](const Transfer& transfer) { trace.transferred(transfer); };
    }
    outbox.credit = [this](const caf::actor& to, Credit credit) { send_to(this, to, std::move(credit)); };
    rank->ports().connect(directory, std::move(outbox));
    rank->reductions().connect(directory, reductions);
  }
}

void SectionReplica::retire() {
  coordinator_ = nullptr;
  for (const auto& rank : ranks_) rank->ports().leave();
  const auto rank_ended = [this] { working_ -= std::min<std::size_t>(working_, 1); };
  ignore_other_messages(
      this, {[rank_ended](const WorkDone&) { rank_ended(); }, [rank_ended](const Failure&) { rank_ended(); },
             [rank_ended](const TransferBroken&) { rank_ended(); },
             [this](MemoryDue) { working_ == 0 ? ranks_.clear() : await_release(); }});
  await_release();
}

void SectionReplica::await_release() {
  delayed_send(this, 2 * std::chrono::milliseconds(spec_.network->options().timeout_ms), MemoryDue{});
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

void SectionReplica::ring_event(std::uint32_t immediate) {
  const std::uint32_t ring = unpack_immediate(immediate).edge.value();
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank]->reductions().landed(immediate)) return;
    if (ranks_[rank]->ports().owns_ring(ring))
      return check(ranks_[rank]->ports().landed(immediate, arrived(LayoutRank(rank))));
  }
}

bool SectionReplica::owns(const ReplicaRank& rank, std::uint64_t cookie) {
  return unpack_cookie(cookie).client == rank.ports().client();
}

void SectionReplica::write_finished(std::uint64_t cookie) {
  for (const auto& rank : ranks_) {
    if (!owns(*rank, cookie)) continue;
    if (!rank->reductions().write_finished(cookie)) rank->ports().write_finished(cookie);
  }
}

BuffersFree SectionReplica::buffers_free() const {
  BuffersFree free;
  for (const auto& rank : ranks_) {
    const BuffersFree own = rank->ports().buffers_free();
    free.outputs = free.outputs && own.outputs;
    free.gradients = free.gradients && own.gradients;
  }
  return free;
}

void SectionReplica::pump() {
  ++events_;
  if (failed_ || still_) return;
  if (busy_) return continue_exchange();
  const std::optional<Work> next = lane_.next(buffers_free());
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
  submit_all(std::move(jobs), emulated_time(*plan, forward, backward));
}

void SectionReplica::submit_first(std::string_view label, Job job) {
  working_ = 1;
  gathered_ = WorkDone{};
  ReplicaRank& first = *ranks_.front();
  first.submit(first.trace().work(label, TraceCategory::step, step_), std::move(job), {},
               caf::actor_cast<caf::actor>(this));
}

void SectionReplica::submit_all(std::string_view label, const std::function<Job(ReplicaRank&)>& job_of,
                                std::chrono::nanoseconds lasts) {
  std::vector<std::pair<TracedWork, Job>> work;
  for (const auto& rank : ranks_) {
    work.emplace_back(rank->trace().work(label, TraceCategory::step, step_), job_of(*rank));
  }
  submit_all(std::move(work), lasts);
}

void SectionReplica::submit_all(std::vector<std::pair<TracedWork, Job>> work, std::chrono::nanoseconds lasts) {
  working_ = ranks_.size();
  gathered_ = WorkDone{};
  std::unique_lock<std::mutex> gang;
  EmulatedWork emulated{lasts};
  if (ranks_.size() > 1) emulated.joint = std::make_shared<JointWork>(ranks_.size());
  if (ranks_.size() > 1 && spec_.collective_submit_mutex != nullptr)
    gang = std::unique_lock(*spec_.collective_submit_mutex);  // the same order on all devices
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    auto& [traced, job] = work[rank];
    ranks_[rank]->submit(std::move(traced), std::move(job), emulated, caf::actor_cast<caf::actor>(this));
  }
}

void SectionReplica::rank_done(WorkDone result) {
  ++events_;
  if (still_ && !standing_.pending()) return;
  if (exchanging()) {
    ranks_[result.layout_rank.value()]->reductions().job_done();
    return continue_exchange();
  }
  if (working_ == 0) return fail("work finished that was never started");
  add_to(gathered_, result);
  if (--working_ == 0) done();
}

void SectionReplica::done() {
  if (work_.kind == ReplicaLane::Kind::mark) return action_done();
  const PassCost took = emulated_.value_or(PassCost{gathered_.forward_ms, gathered_.backward_ms});
  clock_.pass_ended(took.forward + took.backward, Clock::now());
  passes_.finished(std::move(gathered_.metrics), took);
  pass_done();
}

std::chrono::nanoseconds SectionReplica::emulated_time(const MicroBatchPlan& plan, bool forward, bool backward) {
  if (!spec_.emulated.passes) return {};
  const PassCost cost = spec_.emulated.passes(plan.samples);
  emulated_ = PassCost{forward ? cost.forward : 0, backward ? cost.backward : 0};
  const std::chrono::duration<double, std::milli> lasts(emulated_->forward + emulated_->backward);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(lasts);
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
