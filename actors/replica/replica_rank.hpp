// SPDX-License-Identifier: Apache-2.0
// One rank of a section replica: a device with its share of the section, and the ports and the reductions that belong
// to it. Plain class; the replica's actor passes messages in and says when passes run.
//
// RK-1: at most one piece of work of a rank is on its device at any time.
// RK-2: work that meets other ranks in collectives reaches the devices of all ranks in one order
// (ReplicaSpec::collective_submit_mutex),
//       so that ranks never wait for each other in a circle.
// RK-3: a rank whose work fails aborts its collectives, and so does one that is woken by that: no rank waits for it.
// RK-4: what work gives is used only when nothing that it met others in has failed. Such failures are told as
//       TransferBroken, for a peer that was lost is the better explanation.
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

/// Not thread-safe; belongs to the replica's actor.
class ReplicaRank {
 public:
  using Job = RankJob;
  /// `spec` and what it refers to outlive the rank.
  ReplicaRank(const ReplicaSpec& spec, std::uint32_t index, PortEvents events);
  ~ReplicaRank();
  ReplicaRank(const ReplicaRank&) = delete;
  ReplicaRank& operator=(const ReplicaRank&) = delete;

  [[nodiscard]] ReplicaPorts& ports() { return ports_; }
  [[nodiscard]] const ReplicaPorts& ports() const { return ports_; }
  [[nodiscard]] RankExchanges& reductions() { return reductions_; }
  [[nodiscard]] const RankExchanges& reductions() const { return reductions_; }
  [[nodiscard]] ReplicaTrace& trace() { return trace_; }
  [[nodiscard]] const std::shared_ptr<SectionRunner>& runner() const { return spec_->ranks[index_].runner; }
  /// Sends events of this rank's rings and writes to `self`.
  void route(const caf::actor& self) const;

  /// Takes in what arrived for a pass and the buffers it fills; the job runs the pass.
  Result<Job> pass(const SharedMicroBatch& batch, bool forward, bool backward);
  [[nodiscard]] TracedWork traced_pass(const MicroBatchPlan& plan, bool forward, bool backward) const;
  /// The pass is done: what it made leaves as credits allow.
  Status send(const MicroBatchPlan& plan);

  /// Queues work; WorkDone comes to `self`, or Failure, or TransferBroken where an exchange with peers has failed.
  void submit(TracedWork traced, Job job, std::chrono::nanoseconds lasts, const caf::actor& self) const;

 private:
  [[nodiscard]] const GraphNode& node() const { return spec_->graph->node(spec_->section); }

  const ReplicaSpec* spec_;
  std::uint32_t index_;
  ReplicaPorts ports_;
  RankExchanges reductions_;
  ReplicaTrace trace_;
  std::vector<SendBuffer> sending_;
};

}  // namespace maestro
