// SPDX-License-Identifier: Apache-2.0
// Everything that a process has built for a run: devices, sections, network, actor system and actors. Ends them in the
// order of PR-1.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/process/actor_environment.hpp"
#include "actors/process/process_part.hpp"
#include "actors/process/replica_builder.hpp"
#include "actors/replica/generation_replica.hpp"
#include "actors/replica/replica_spec.hpp"
#include "actors/services/imported_memories.hpp"
#include "actors/services/network.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/collective/abort_reason.hpp"
#include "runtime/device/emulated_device.hpp"
#include "runtime/observe/trace.hpp"

namespace maestro {

/// Used by the main thread. During the run, the supervisor's thread spawns replicas (ProcessPlacements) and calls
/// summary_at_end(); abandon() is thread-safe after the network was opened.
class BuiltProcess {
 public:
  explicit BuiltProcess(ProcessPart& part);
  BuiltProcess(const BuiltProcess&) = delete;
  BuiltProcess& operator=(const BuiltProcess&) = delete;
  ~BuiltProcess();

  [[nodiscard]] const ReplicaBuilder& builder() const { return builder_; }
  /// Starts the actor system. Throws JobError.
  void open_actors(const ActorSystemOptions& options);
  /// Builds this process's replicas and opens its network. Throws JobError.
  void build();

  [[nodiscard]] TraceRecorder& trace() { return trace_; }
  [[nodiscard]] SnapshotWriter& snapshots() { return snapshots_; }
  [[nodiscard]] ActorEnvironment& actors() { return *actors_; }
  [[nodiscard]] Network& network() { return *network_; }
  [[nodiscard]] const Network& network() const { return *network_; }
  [[nodiscard]] const std::vector<BuiltReplica>& replicas() const { return replicas_; }

  /// Keeps an actor until the run ends.
  void keep(const caf::actor& actor) { spawned_.push_back(actor); }
  void set_supervisor(const caf::actor& supervisor);
  void set_coordinator(const caf::actor& coordinator);
  [[nodiscard]] const caf::actor& supervisor() const { return supervisor_; }
  [[nodiscard]] const caf::actor& coordinator() const { return coordinator_; }
  OwnActor spawn_replica(const Placement& placement, Epoch epoch);

  [[nodiscard]] ProcessSummary summary() const;
  /// Returns the summary with the replicas' arena peaks; closes the memories of other processes (OM-1).
  [[nodiscard]] ProcessSummary summary_at_end();
  /// Ends writes to the memory of another process. Without effect before the network was opened.
  void abandon(ProcessId process);
  /// Fails work that waits for other ranks of a group.
  void end_groups(const std::string& why) { groups_end_->set(why); }
  /// Stops the threads that send messages to actors: devices, snapshot writer, network (PR-1). Idempotent.
  void stop_threads();
  /// Stops the network if it was opened.
  void stop_network();
  /// Ends the actors and their system, after stop_threads(). Idempotent.
  void stop_actors();

 private:
  [[nodiscard]] Device* device(const ReplicaPlacement& at, LayoutRank of_rank);
  [[nodiscard]] std::unique_ptr<Device> open_device(const ReplicaPlacement& at, const DeviceId& id);
  [[nodiscard]] GenerationOptions generation_options() const;
  /// Returns the section's edge of weights. Throws JobError if the checkpoint lacks versions.
  [[nodiscard]] WeightEdge weight_edge(SectionId section) const;
  [[nodiscard]] ReplicaSpec replica_spec(const BuiltReplica& built, const Placement& placement, Epoch epoch);
  /// Returns the replica built for this placement, or else the section's first replica, whose values and devices the
  /// placement shares.
  [[nodiscard]] const BuiltReplica& built_for(const Placement& placement) const;

  ProcessPart& part_;
  TraceRecorder trace_;
  SnapshotWriter snapshots_;
  std::shared_ptr<EmulatedClock> emulated_clock_;  // made with the first emulated device
  /// Devices by section on GPUs, as their sections have separate streams; elsewhere section 0 stands for all sections.
  std::map<std::pair<DeviceId, SectionId>, std::unique_ptr<Device>> devices_;
  DeviceTurns turns_;
  /// Triggered when the run ends, before devices stop, so that queued work no longer waits for other ranks.
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
