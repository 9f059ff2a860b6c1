// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_ranks.hpp"

#include <algorithm>

#include "actors/services/write_cookie.hpp"
#include "runtime/device/emulated_device.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

namespace {

/// Adds a rank's result: metrics add up, and the slowest rank determines the times.
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
  all.device_ms = std::max(all.device_ms, one.device_ms);
}

/// Returns whether the rank began the write or copy with this cookie.
bool owns(const ReplicaRank& rank, std::uint64_t cookie) {
  return unpack_cookie(cookie).client == rank.ports().client();
}

}  // namespace

ReplicaRanks::ReplicaRanks(const ReplicaSpec& spec, const caf::actor& actor)
    : spec_(&spec), actor_(caf::actor_cast<caf::actor_addr>(actor)) {
  for (std::uint32_t rank = 0; rank < spec.ranks.size(); ++rank) {
    // A weak reference: if the run ends early, buffers and copies outlive the actor.
    const auto weak = actor_;
    PortEvents events;
    events.buffer_free = [weak] {
      if (const auto alive = caf::actor_cast<caf::actor>(weak)) send_from_outside(alive, BufferFree{});
    };
    events.copied = [weak](std::uint64_t cookie, const std::string& failure) {
      if (const auto alive = caf::actor_cast<caf::actor>(weak)) send_from_outside(alive, CopyFinished{cookie, failure});
    };
    ranks_.push_back(std::make_unique<ReplicaRank>(spec, LayoutRank(rank), std::move(events)));
    ranks_.back()->route(actor);
  }
}

void ReplicaRanks::submit_first(std::string_view label, StepId step, Job job) {
  working_ = 1;
  results_.assign(1, {});
  first().submit(first().trace().work(label, TraceCategory::step, step), std::move(job), {}, actor());
}

void ReplicaRanks::submit(std::string_view label, StepId step, const std::function<Job(ReplicaRank&)>& job_of,
                          std::chrono::nanoseconds lasts) {
  std::vector<std::pair<TracedWork, Job>> work;
  for (const auto& rank : ranks_) {
    work.emplace_back(rank->trace().work(label, TraceCategory::step, step), job_of(*rank));
  }
  submit(std::move(work), lasts);
}

void ReplicaRanks::submit(std::vector<std::pair<TracedWork, Job>> work, std::chrono::nanoseconds lasts,
                          const ReplicaLane::Work* pass) {
  working_ = ranks_.size();
  results_.assign(ranks_.size(), {});
  EmulatedWork emulated{lasts};
  if (ranks_.size() > 1) emulated.joint = std::make_shared<JointWork>(ranks_.size());
  // A replica that replaces another runs on devices that the plan does not know, so its turns do not apply.
  const bool takes_turns = pass != nullptr && !pass->turns().empty() && !spec_->again;
  std::function<void()> ended;
  if (takes_turns) {
    ended = [turns = spec_->turns, of_pass = pass->turns(),
             left = std::make_shared<std::atomic<std::size_t>>(working_)] {
      if (--*left > 0) return;
      for (const DeviceTurn& turn : of_pass) turns->ended(turn.device);
    };
  }
  *queued_ = false;
  // The handle keeps the ranks: a start may come when the actor has ended.
  DeviceTurns::Start queue = [this, self = actor(), queued = queued_, work = std::move(work), emulated,
                              ended]() mutable {
    *queued = true;
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
      auto& [traced, job] = work[rank];
      ranks_[rank]->submit(std::move(traced), std::move(job), emulated, self, ended);
    }
  };
  if (takes_turns) return spec_->turns->offer({pass->batch->step, pass->batch->pass}, pass->turns(), std::move(queue));
  if (ranks_.size() > 1 && spec_->turns != nullptr) return spec_->turns->begin(std::move(queue));  // DT-3
  queue();
}

bool ReplicaRanks::continue_exchange(StepId step) {
  bool complete = true;
  for (const auto& rank : ranks_) {
    if (auto next = rank->reductions().next_job()) {
      rank->submit(rank->trace().work(next->label, TraceCategory::step, step), std::move(next->job), {}, actor());
    }
    complete = rank->reductions().complete() && complete;
  }
  return complete;
}

bool ReplicaRanks::add(const WorkDone& result) {
  results_.at(result.layout_rank.value()) = result;
  if (--working_ > 0) return false;
  gathered_ = {};
  for (const WorkDone& each : results_) add_to(gathered_, each);  // in rank order: figures repeat to the bit
  return true;
}

BuffersFree ReplicaRanks::buffers_free() const {
  BuffersFree free;
  for (const auto& rank : ranks_) {
    const BuffersFree own = rank->ports().buffers_free();
    free.outputs = free.outputs && own.outputs;
    free.gradients = free.gradients && own.gradients;
  }
  return free;
}

Status ReplicaRanks::expect(const MicroBatchPlan& plan, const ArrivedAt& arrived) const {
  for (std::uint32_t index = 0; index < ranks_.size(); ++index) {
    if (Status taken = ranks_[index]->ports().expect(plan, arrived(LayoutRank(index))); !taken) return taken;
  }
  return {};
}

Status ReplicaRanks::landed(std::uint32_t immediate, const ArrivedAt& arrived) const {
  const std::uint32_t ring = unpack_immediate(immediate).edge.value();
  for (std::uint32_t index = 0; index < ranks_.size(); ++index) {
    ReplicaRank& rank = *ranks_[index];
    if (rank.reductions().landed(immediate)) return {};
    if (rank.ports().owns_ring(ring)) return rank.ports().landed(immediate, arrived(LayoutRank(index)));
  }
  return {};
}

Status ReplicaRanks::credit(const Credits& credits) const {
  for (const Credit& credit : credits.rings) {
    for (const auto& rank : ranks_) {
      if (Status granted = rank->ports().credit(credit); !granted) return granted;
    }
  }
  return {};
}

void ReplicaRanks::write_finished(std::uint64_t cookie) const {
  for (const auto& rank : ranks_) {
    if (!owns(*rank, cookie)) continue;
    if (!rank->reductions().write_finished(cookie)) rank->ports().write_finished(cookie);
  }
}

Status ReplicaRanks::copied(const CopyFinished& finished) const {
  for (const auto& rank : ranks_) {
    if (owns(*rank, finished.cookie)) return rank->ports().copied(finished.cookie, finished.failure);
  }
  return {};
}

}  // namespace maestro
