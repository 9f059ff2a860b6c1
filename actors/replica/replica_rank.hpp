// SPDX-License-Identifier: Apache-2.0
// A replica's rank: a device with its shard of the section, its ports and its exchanges. Plain class; the replica's
// actor passes messages in and starts passes. A rank has at most one job on its device at any time (RA-1, XC-1).
//
// Work with collectives reaches all ranks' devices in the same order (DT-3), so ranks never wait for each other in a
// circle.
//
// RJ-1 (abort propagates): a rank whose job fails aborts its collectives, and a rank that such an abort interrupts does
//       the same. No rank waits for a failed rank.
// RJ-2 (failed exchanges): a job's result is used only if no collective or exchange in it has failed. Such a failure is
//       reported as TransferBroken, because the loss of a peer is the better explanation.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/replica/reduction/rank_exchanges.hpp"
#include "actors/replica/reduction/rank_work.hpp"
#include "actors/replica/replica_ports.hpp"
#include "actors/replica/replica_spec.hpp"
#include "actors/replica/replica_trace.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

/// A job on an emulated device.
struct EmulatedWork {
  std::chrono::nanoseconds lasts{0};
  std::shared_ptr<JointWork> joint = {};  ///< joint job of all ranks, which hold it until it begins; null: one rank
};

/// Not thread-safe; belongs to the replica's actor.
class ReplicaRank {
 public:
  using Job = RankJob;
  /// `spec` and the objects in it outlive the rank.
  ReplicaRank(const ReplicaSpec& spec, LayoutRank rank, PortEvents events);
  ReplicaRank(const ReplicaRank&) = delete;
  ReplicaRank& operator=(const ReplicaRank&) = delete;

  [[nodiscard]] ReplicaPorts& ports() { return ports_; }
  [[nodiscard]] const ReplicaPorts& ports() const { return ports_; }
  [[nodiscard]] RankExchanges& reductions() { return reductions_; }
  [[nodiscard]] const RankExchanges& reductions() const { return reductions_; }
  [[nodiscard]] ReplicaTrace& trace() { return trace_; }
  [[nodiscard]] const std::shared_ptr<SectionRunner>& runner() const { return spec_->ranks[rank_.value()].runner; }
  /// Sends events of this rank's rings and writes to `self`.
  void route(const caf::actor& self) const;

  /// Takes the tensors that arrived for a pass and acquires its send buffers. Returns the job that runs the pass.
  Result<Job> pass(const SharedMicroBatch& batch, bool forward, bool backward);
  [[nodiscard]] TracedWork traced_pass(const MicroBatchPlan& plan, bool forward, bool backward) const;
  /// Sends a completed pass' outputs as credits allow.
  Status send(const MicroBatchPlan& plan);
  /// Adds what the rank has sent since the last call to the replica's report.
  void report(StepDone& done);

  /// Queues a job. `self` receives WorkDone, Failure, or TransferBroken (RJ-2). `ended` is called, if given, when the
  /// device has finished the job. Any thread.
  void submit(TracedWork traced, Job job, const EmulatedWork& emulated, const caf::actor& self,
              const std::function<void()>& ended = {}) const;

 private:
  [[nodiscard]] const GraphNode& node() const { return spec_->graph->node(spec_->section); }

  const ReplicaSpec* spec_;
  LayoutRank rank_;
  ReplicaPorts ports_;
  RankExchanges reductions_;
  ReplicaTrace trace_;
  std::vector<SendBuffer> sending_;
  /// End of the last pass on an emulated device, for the trace; used by the device's thread.
  std::shared_ptr<TraceTime> emulated_end_ = std::make_shared<TraceTime>();
};

}  // namespace maestro
