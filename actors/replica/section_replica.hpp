// SPDX-License-Identifier: Apache-2.0
// The actor of one section replica: a thin shell that turns messages into calls of the lane and of its ranks, and gives
// their work to the device threads. It never blocks; a handler does no arithmetic.
//
// RA-1: all ranks run the same pass or the same part of a mark; the next begins when the last rank has done.
// RA-2: every failure goes to the supervisor, with section, replica and step; nothing is retried here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/messages/run_actor.hpp"
#include "actors/replica/pass_log.hpp"
#include "actors/replica/replica_snapshot.hpp"

namespace maestro {

class SectionReplica : public RunActor {
 public:
  SectionReplica(caf::actor_config& config, ReplicaSpec spec);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.section_replica"; }
  void on_exit() override;

 private:
  using Work = ReplicaLane::Work;
  using Job = ReplicaRank::Job;
  [[nodiscard]] const GraphNode& node() const { return spec_.graph->node(spec_.section); }
  [[nodiscard]] ReplicaAddress address() const;
  [[nodiscard]] bool trained() const { return node().trained(); }
  /// Replicas keep a shard of the optimizer state each.
  [[nodiscard]] bool optimizer_sharded() const {
    return ranks_.front()->runner()->section().parameters().optimizer_sharded();
  }

  void connect(const Directory& directory);
  void pump();
  void start(const Work& work);
  void start_pass(const Work& work, bool forward, bool backward);
  void start_mark(const StepBoundary& mark);
  void start_reduction();
  void continue_exchange();
  void exchanged();
  void clip();
  void start_step(double sum_of_squares);
  void norm_known();
  void stepped();
  void step_passed();
  void start_snapshot();
  void start_gather(ParameterBuffer which);
  void moments_gathered();
  void start_writing();
  /// Gradients carried moments.
  void start_clearing();
  /// The same part of a mark on every rank.
  void submit_all(std::string_view label, const std::function<Job(ReplicaRank&)>& job_of);
  void submit_first(std::string_view label, Job job);
  /// Queues what every rank has to do, in rank order; done() follows when all have.
  void submit_all(std::vector<std::pair<TracedWork, Job>> work, std::chrono::nanoseconds lasts);
  void phase_pass_done(const MicroBatchPlan& plan, ReplicaLane::Kind kind);
  /// How long the passes take on an emulated device; `emulated_` keeps it.
  std::chrono::nanoseconds emulated_time(const MicroBatchPlan& plan, bool forward, bool backward);
  void rank_done(WorkDone result);
  void done();
  void pass_done();
  void mark_passed();
  void finish_mark();
  ReplicaPorts::Arrived arrived(std::uint32_t layout_rank);
  void ring_event(std::uint32_t immediate);
  /// A write or copy with this cookie is the rank's.
  [[nodiscard]] static bool owns(const ReplicaRank& rank, std::uint64_t cookie);
  void write_finished(std::uint64_t cookie);
  void check(const Status& status);
  void fail(const std::string& message);
  [[nodiscard]] std::string where() const override;
  [[nodiscard]] WaitingFor status() const;
  [[nodiscard]] WaitingFor waits_for() const;
  [[nodiscard]] WaitingFor idle_waits_for() const;
  [[nodiscard]] BuffersFree buffers_free() const;
  void note_wait();

  ReplicaSpec spec_;
  std::vector<std::unique_ptr<ReplicaRank>> ranks_;
  ReplicaLane lane_;
  caf::actor coordinator_;

  // What is on the devices, or between two parts of a mark.
  enum class Stage : std::uint8_t {
    idle,
    pass,
    adding,
    reducing,
    norm,
    clipping,
    stepping,
    distributing,  // where replicas share moments: new values
    taking,
    join_check,  // likewise: moments
    copying,
    writing,
    clearing
  };
  /// Ranks exchange something with those of other replicas.
  [[nodiscard]] bool exchanging() const;
  Stage stage_ = Stage::idle;
  std::size_t working_ = 0;  // ranks that have not done their part
  WorkDone gathered_;        // of those that have: sums of figures, the longest times
  Work work_;
  StepId step_;
  using Clock = std::chrono::steady_clock;
  PassLog passes_;
  std::optional<PassCost> emulated_;  // what the running pass takes, where devices are emulated
  double sum_of_squares_ = 0;
  double lr_ = 0;
  std::optional<ReplicaSnapshot> snapshot_;                     // while the replica writes one
  ParameterBuffer gathering_ = ParameterBuffer::first_moments;  // of it
  std::optional<NormTotal> norm_total_;                         // the last one; of step_ when it came early
  bool failed_ = false;
  std::uint64_t events_ = 0;  // messages of progress so far
  std::optional<TraceTime> idle_since_;
  std::string idle_reason_;
};

}  // namespace maestro
