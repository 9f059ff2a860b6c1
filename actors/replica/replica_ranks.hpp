// SPDX-License-Identifier: Apache-2.0
// A replica's ranks, which all run the same job (RA-1). Owns the ranks and the results of running jobs. Not
// thread-safe; belongs to the replica's actor.
#pragma once

#include <atomic>

#include "actors/replica/replica_rank.hpp"
#include "runtime/schedule/replica_lane.hpp"

namespace maestro {

class ReplicaRanks {
 public:
  using Job = ReplicaRank::Job;
  /// `spec` outlives the ranks. Results of jobs and events of ports go to `actor`, which owns the ranks.
  ReplicaRanks(const ReplicaSpec& spec, const caf::actor& actor);

  [[nodiscard]] auto begin() const { return ranks_.begin(); }
  [[nodiscard]] auto end() const { return ranks_.end(); }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  [[nodiscard]] ReplicaRank& first() const { return *ranks_.front(); }
  [[nodiscard]] ReplicaRank& at(LayoutRank rank) const { return *ranks_[rank.value()]; }
  void clear() { ranks_.clear(); }

  /// Queues the same action on every rank. `lasts`: its time on emulated devices.
  void submit(std::string_view label, StepId step, const std::function<Job(ReplicaRank&)>& job_of,
              std::chrono::nanoseconds lasts = {});
  /// Queues the jobs of all ranks, in rank order; of a pass with turns, as soon as its turn has come.
  void submit(std::vector<std::pair<TracedWork, Job>> work, std::chrono::nanoseconds lasts,
              const ReplicaLane::Work* pass = nullptr);
  void submit_first(std::string_view label, StepId step, Job job);
  /// Queues the next jobs of the exchange with other replicas. Returns whether it is complete.
  bool continue_exchange(StepId step);

  /// Returns whether the running jobs are on the devices' queues, and do not wait for their turn.
  [[nodiscard]] bool queued() const { return *queued_; }
  /// Returns whether some rank has not finished its job.
  [[nodiscard]] bool working() const { return working_ > 0; }
  /// Adds the result of a rank's job; returns whether it was the last.
  bool add(const WorkDone& result);
  /// Counts the end of a job with an unused result.
  void job_ended() { working_ -= std::min<std::size_t>(working_, 1); }
  /// Returns the results of all ranks after the last has finished: sums of metrics in rank order, longest times.
  [[nodiscard]] WorkDone& gathered() { return gathered_; }

  [[nodiscard]] BuffersFree buffers_free() const;
  /// Returns what notes a rank's complete sequences.
  using ArrivedAt = std::function<ReplicaPorts::Arrived(LayoutRank)>;
  Status expect(const MicroBatchPlan& plan, const ArrivedAt& arrived) const;
  /// Passes a write that has landed to the rank that owns its ring.
  Status landed(std::uint32_t immediate, const ArrivedAt& arrived) const;
  Status credit(const Credits& credits) const;
  void write_finished(std::uint64_t cookie) const;
  [[nodiscard]] Status copied(const CopyFinished& finished) const;

 private:
  [[nodiscard]] caf::actor actor() const { return caf::actor_cast<caf::actor>(actor_); }

  const ReplicaSpec* spec_;
  caf::actor_addr actor_;
  std::vector<std::unique_ptr<ReplicaRank>> ranks_;
  std::size_t working_ = 0;  // number of ranks that have not finished their job
  std::shared_ptr<std::atomic<bool>> queued_ = std::make_shared<std::atomic<bool>>(true);
  std::vector<WorkDone> results_;  // by rank
  WorkDone gathered_;
};

}  // namespace maestro
