// SPDX-License-Identifier: Apache-2.0
// One rank of a section replica: a device with its share of the section, and the ports and the reductions that belong
// to it. Plain class; the replica's actor passes messages in and says when passes run.
//
// RK-1: at most one piece of work of a rank is on its device at any time.
// RK-2: work that meets other ranks in collectives reaches the devices of all ranks in one order (ReplicaSpec::gang),
//       so that ranks never wait for each other in a circle.
// RK-3: a rank whose work fails aborts its collectives, and so does one that is woken by that: no rank waits for it.
// RK-4: what work gives is used only when nothing that it met others in has failed. Such failures are told as
//       TransferBroken, for a peer that was lost is the better explanation.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages.hpp"
#include "actors/network.hpp"
#include "actors/opened_memory.hpp"
#include "actors/rank_reductions.hpp"
#include "actors/rank_work.hpp"
#include "actors/replica_ports.hpp"
#include "actors/replica_trace.hpp"
#include "actors/snapshot_writer.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

/// Where one rank works.
struct RankSpec {
  std::shared_ptr<SectionRunner> runner;  ///< shared with work on the device thread
  Device* device = nullptr;
};

/// The groups that devices form for reductions.
struct GroupSpec {
  const std::vector<ReplicaPlace>* places = nullptr;  ///< of all replicas of the job; null: there are no groups
  std::shared_ptr<AbortReason> end;                   ///< ends all groups of the process, which share it
};

/// What a replica is made of; shared parts outlive the actor system.
struct ReplicaSpec {
  const SectionGraph* graph = nullptr;
  SectionId section;
  ReplicaIndex replica;
  ProcessRank rank;
  SampleRef largest{SampleId(0), 1};  ///< the most rows that a sample has, by axis
  FlowLimits limits;
  /// What a micro-batch's passes take on an emulated device; empty for a real one.
  std::function<PassCost(std::span<const SampleRef>)> emulated_ms;
  Epoch epoch;
  bool remote = false;
  JobPaths paths;
  const DeviceBackend* backend = nullptr;            ///< of ranks on devices with memory of their own
  OpenedMemory* opened = nullptr;                    ///< likewise
  std::function<void(const std::string& line)> log;  ///< from any thread; may be empty
  bool global_clip = false;
  std::vector<RankSpec> ranks;  ///< of the section's layout
  GroupSpec groups;
  const OperatorTable* host_ops = nullptr;  ///< for sums in memory of the processor
  std::mutex* gang = nullptr;               ///< of all replicas of the process (RK-2); may be absent with one rank
  Network* network = nullptr;
  TraceRecorder* trace = nullptr;
  SnapshotWriter* snapshots = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< for error messages; absent in rank 0
  caf::actor supervisor;
  caf::actor bridge;  ///< judges failed writes
};

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
  [[nodiscard]] RankReductions& reductions() { return reductions_; }
  [[nodiscard]] const RankReductions& reductions() const { return reductions_; }
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
  RankReductions reductions_;
  ReplicaTrace trace_;
  std::vector<SendBuffer> sending_;
};

}  // namespace maestro
