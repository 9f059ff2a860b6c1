// SPDX-License-Identifier: Apache-2.0
// The parts of a section replica.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/job/transfer_paths.hpp"
#include "actors/messages/message_types.hpp"
#include "actors/services/imported_memories.hpp"
#include "actors/services/network.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/device_turns.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

/// A rank's device and runner.
struct RankSpec {
  std::shared_ptr<SectionRunner> runner;  ///< shared with work on the device thread
  Device* device = nullptr;
  DeviceId device_id = {};
};

/// Times on emulated devices.
struct EmulatedTimes {
  std::function<PassCost(std::span<const SampleRef>)> passes;  ///< a micro-batch's passes in ms; empty on real devices
  /// Returns the times of these passes in ms; nothing on real devices.
  [[nodiscard]] std::optional<PassCost> of(const MicroBatchPlan& plan, bool forward, bool backward) const {
    if (!passes) return std::nullopt;
    const PassCost cost = passes(plan.samples);
    return PassCost{forward ? cost.forward : 0, backward ? cost.backward : 0};
  }
  std::chrono::nanoseconds sum{0};   ///< gradient sum over the replicas
  std::chrono::nanoseconds step{0};  ///< optimizer step
};

/// Settings of the groups that devices form for reductions.
struct GroupSpec {
  const std::vector<ReplicaPlacement>* places = nullptr;  ///< places of all the job's replicas; null: no groups
  std::shared_ptr<AbortReason> end;                       ///< ends the process' groups, which share it
};

/// A section's weights before a step, in the checkpoint that the run begins with.
struct StoredVersion {
  StepId step;
  std::shared_ptr<const std::vector<SafetensorsFile>> files;
};

/// An edge of weights. Version k is the weights before step k.
struct WeightEdge {
  std::int64_t staleness = 0;         ///< steps that the generators' weights are older than those trained
  DType dtype = DType::f32;           ///< dtype of the versions: f32 or bf16
  StepId last_step;                   ///< last step of the run
  std::vector<StoredVersion> stored;  ///< versions that the first steps read, oldest first; only at a sender
};

/// The parts of a replica; shared parts outlive the actor system.
struct ReplicaSpec {
  const SectionGraph* graph = nullptr;
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  SampleRef largest{SampleId(0), 1};  ///< a sample's largest number of rows, by axis
  FlowLimits limits;
  EmulatedTimes emulated;
  Epoch epoch;
  bool again = false;   ///< the replica replaces another in a running job
  bool shares = false;  ///< it has the section and the devices of another replica
  bool remote = false;
  TransferPaths paths;
  const DeviceBackend* backend = nullptr;  ///< backend of ranks on devices with device memory
  ImportedMemories* opened = nullptr;      ///< memories of other processes, for such ranks
  MemorySpace* pins = nullptr;  ///< pins memory for a device of this process that reads tensors of CPU ranks; optional
  std::function<void(const std::string& line)> log;  ///< from any thread; may be empty
  bool joined_norms = false;                         ///< the coordinator combines the norms of all trained sections
  WeightEdge weights;                                ///< edge of weights, at either end
  StepId trained_until;                              ///< last step in its state at the start
  std::vector<RankSpec> ranks;                       ///< ranks of the section's layout
  GroupSpec groups;
  const OperatorTable* host_ops = nullptr;  ///< for sums in host memory
  DeviceTurns* turns = nullptr;             ///< order of the process' replicas on their devices; optional with a single
                                            ///< rank
  Network* network = nullptr;
  TraceRecorder* trace = nullptr;
  SnapshotWriter* snapshots = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< for error messages; absent in rank 0
  caf::actor supervisor;
};

}  // namespace maestro
