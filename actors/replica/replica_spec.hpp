// SPDX-License-Identifier: Apache-2.0
// The parts that a section replica is built from.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "actors/job/transfer_paths.hpp"
#include "actors/messages/message_types.hpp"
#include "actors/services/imported_memories.hpp"
#include "actors/services/network.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

/// The device of a rank, and its runner.
struct RankSpec {
  std::shared_ptr<SectionRunner> runner;  ///< shared with work on the device thread
  Device* device = nullptr;
  DeviceId device_id = {};
};

/// Times on emulated devices.
struct EmulatedTimes {
  std::function<PassCost(std::span<const SampleRef>)> passes;  ///< ms of a micro-batch's; empty on real devices
  std::chrono::nanoseconds sum{0};                             ///< of gradients, over the replicas
  std::chrono::nanoseconds step{0};                            ///< of the optimizer
};

/// The groups that devices form for reductions.
struct GroupSpec {
  const std::vector<ReplicaPlacement>* places = nullptr;  ///< of all replicas of the job; null: there are no groups
  std::shared_ptr<AbortReason> end;                       ///< ends all groups of the process, which share it
};

/// The parts of a replica; shared parts outlive the actor system.
struct ReplicaSpec {
  const SectionGraph* graph = nullptr;
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  SampleRef largest{SampleId(0), 1};  ///< the most rows that a sample has, by axis
  FlowLimits limits;
  EmulatedTimes emulated;
  Epoch epoch;
  bool again = false;  ///< it takes the placement of a predecessor in a running job
  bool remote = false;
  TransferPaths paths;
  const DeviceBackend* backend = nullptr;  ///< of ranks on devices with memory of their own
  ImportedMemories* opened = nullptr;      ///< likewise
  MemorySpace* pins = nullptr;  ///< of a device of this process that reads what CPU ranks send; may be absent
  std::function<void(const std::string& line)> log;  ///< from any thread; may be empty
  bool joined_norms = false;    ///< the coordinator answers the norms of all trained sections together
  StepId trained_until;         ///< its state at the start is that after this step, or after the step before the first
  std::vector<RankSpec> ranks;  ///< of the section's layout
  GroupSpec groups;
  const OperatorTable* host_ops = nullptr;        ///< for sums in host memory
  std::mutex* collective_submit_mutex = nullptr;  ///< of all replicas of the process; held while the ranks' work is
                                                  ///< queued. May be absent with a single rank
  Network* network = nullptr;
  TraceRecorder* trace = nullptr;
  SnapshotWriter* snapshots = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< for error messages; absent in rank 0
  caf::actor supervisor;
};

}  // namespace maestro
