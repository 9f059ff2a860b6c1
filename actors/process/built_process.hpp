// SPDX-License-Identifier: Apache-2.0
// Everything that a process has built for a run: devices, sections, network, actor system, and the actors. Ends it in
// the order of PR-1.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/process/actor_environment.hpp"
#include "actors/process/process_part.hpp"
#include "actors/process/replica_builder.hpp"
#include "actors/replica/replica_spec.hpp"
#include "actors/services/imported_memories.hpp"
#include "actors/services/network.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/collective/abort_reason.hpp"
#include "runtime/device/emulated_device.hpp"
#include "runtime/observe/trace.hpp"

namespace maestro {

/// Used by the main thread. While the run runs, the supervisor's thread spawns replicas (ProcessPlacements) and calls
/// summaries; abandon() is thread-safe once the network is open.
class BuiltProcess {
 public:
  explicit BuiltProcess(ProcessPart& part);
  BuiltProcess(const BuiltProcess&) = delete;
  BuiltProcess& operator=(const BuiltProcess&) = delete;
  ~BuiltProcess();

  [[nodiscard]] const ReplicaBuilder& builder() const { return builder_; }
  /// Starts the actor system. Throws JobError.
  void open_actors(const ActorSystemOptions& options);
  /// Builds the replicas of this process, and opens its network. Throws JobError.
  void build();

  [[nodiscard]] TraceRecorder& trace() { return trace_; }
  [[nodiscard]] SnapshotWriter& snapshots() { return snapshots_; }
  [[nodiscard]] ActorEnvironment& actors() { return *actors_; }
  [[nodiscard]] Network& network() { return *network_; }
  [[nodiscard]] const Network& network() const { return *network_; }
  [[nodiscard]] const std::vector<BuiltReplica>& replicas() const { return replicas_; }

  /// Ends an actor with the run.
  void keep(const caf::actor& actor) { spawned_.push_back(actor); }
  void set_supervisor(const caf::actor& supervisor);
  void set_coordinator(const caf::actor& coordinator);
  [[nodiscard]] const caf::actor& supervisor() const { return supervisor_; }
  [[nodiscard]] const caf::actor& coordinator() const { return coordinator_; }
  OwnActor spawn_replica(const Placement& placement, Epoch epoch);

  [[nodiscard]] ProcessSummary summary() const;
  /// Returns the summary with the peaks of the replicas' arenas; closes the memories of other processes (OM-1).
  [[nodiscard]] ProcessSummary summary_at_end();
  /// The process is not written to any more. Without effect before the network is open.
  void abandon(ProcessId process);
  /// Work that waits for other ranks of a group fails.
  void end_groups(const std::string& why) { groups_end_->set(why); }
  /// Stops the threads that send messages to actors: devices, snapshot writer, network (PR-1). Idempotent.
  void stop_threads();
  /// Stops the network, as far as it is open.
  void stop_network();
  /// Ends the actors and their system, after stop_threads(). Idempotent.
  void stop_actors();

 private:
  [[nodiscard]] Device* device(const ReplicaPlacement& at, LayoutRank of_rank);
  [[nodiscard]] std::unique_ptr<Device> open_device(const ReplicaPlacement& at, const DeviceId& id);
  [[nodiscard]] ReplicaSpec replica_spec(const BuiltReplica& built, const Placement& placement, Epoch epoch);
  /// Returns the replica built for this placement, or the first of its section, whose values and devices the placement
  /// shares.
  [[nodiscard]] const BuiltReplica& built_for(const Placement& placement) const;

  ProcessPart& part_;
  TraceRecorder trace_;
  SnapshotWriter snapshots_;
  std::shared_ptr<EmulatedClock> emulated_clock_;  // made with the first emulated device
  /// By section for GPUs, whose sections have separate streams; section 0 stands for all on other devices.
  std::map<std::pair<DeviceId, SectionId>, std::unique_ptr<Device>> devices_;
  std::mutex collective_submit_mutex_;  // ReplicaSpec::collective_submit_mutex
  /// Triggered when the run ends, before devices stop: no queued work waits for other ranks any more.
  std::shared_ptr<AbortReason> groups_end_ = std::make_shared<AbortReason>();
  ImportedMemories opened_;
  ReplicaBuilder builder_;
  std::vector<BuiltReplica> replicas_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ActorEnvironment> actors_;  // below all members that actors use: destroyed first (PR-1)
  std::vector<caf::actor> spawned_;
  caf::actor supervisor_;
  caf::actor coordinator_;
};

}  // namespace maestro
