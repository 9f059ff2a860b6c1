// SPDX-License-Identifier: Apache-2.0
// Addresses that processes and replicas exchange before the first step, with handles of actors.
#pragma once

#include <caf/actor.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/messages/memory_addresses.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/process_identity.hpp"
#include "runtime/schedule/forward_replay.hpp"
#include "runtime/schedule/version_map.hpp"

namespace maestro {

struct ReplicaAddress {
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  caf::actor actor;
  std::vector<RingAddress> rings;            ///< rings of all the replica's ranks
  std::vector<ReductionAddress> reductions;  ///< addresses by rank, then by ReductionKind
  bool shares = false;                       ///< computes on another replica's section and devices
  std::vector<WeightBlock> weights = {};     ///< blocks of the ranks of a replica that sends versions

  [[nodiscard]] const ReductionAddress& reduction(LayoutRank layout_rank, ReductionKind kind) const {
    return reductions.at(layout_rank.value() * reduction_kinds + static_cast<std::size_t>(kind));
  }
};

/// A replica and its process.
struct Placement {
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  friend auto operator<=>(const Placement&, const Placement&) = default;
};

/// A process has started: rank 0 watches it from now on, while the process builds its sections.
struct ProcessJoined {
  ProcessId process;
  ProcessIdentity identity;
  std::string host;  ///< name that the user gave; empty in a job on a single host
  caf::actor supervisor;
};
/// A process has built its sections: sent to rank 0.
struct ProcessInfo {
  ProcessId process;
  ProcessIdentity identity;  ///< pid 0: not yet received
  std::string host;          ///< ProcessJoined::host
  std::string build;         ///< version and job; all processes must agree
  std::string endpoint;      ///< opaque address; empty without a network
  std::string actors_host;
  std::uint16_t actors_port = 0;  ///< port of its published supervisor
  caf::actor supervisor;
  std::vector<ReplicaAddress> replicas;
  std::vector<std::string> devices;  ///< devices of its replicas, if the process has joined a running job
};

/// Address of a process' published supervisor.
struct PeerAddress {
  ProcessId process;
  std::string host;
  std::uint16_t port = 0;
};
/// All processes; each connects to the processes before it. Handles of actors follow in the directory: a handle
/// received before its connection exists could break with a connection that fails.
struct PeerList {
  std::vector<PeerAddress> all;
  bool late = false;  ///< the receiver joins a running job: it connects to all, and no process follows
};
/// First message on a new connection, and its answer; both establish the connection.
struct Ping {
  ProcessId process;
};
/// A process is connected to all others.
struct PeersConnected {
  ProcessId process;
};

/// The sender is alive: sent between supervisors several times in each `peer_timeout`.
struct Heartbeat {
  ProcessId process;
};

/// The addresses of all processes: sent by rank 0 to every process.
struct Directory {
  std::vector<ProcessInfo> processes;
  caf::actor coordinator;

  /// Returns the replicas of all processes, valid as long as this. (clang 14 does not accept views of gcc 12's
  /// library.)
  [[nodiscard]] std::vector<std::reference_wrapper<const ReplicaAddress>> replicas() const {
    std::vector<std::reference_wrapper<const ReplicaAddress>> all;
    for (const ProcessInfo& process : processes)
      all.insert(all.end(), process.replicas.begin(), process.replicas.end());
    return all;
  }
};

/// To a replica that sends versions of its weights: a generator's ring, for the versions from `first` on, whose
/// sequence is 0. Answered with VersionsPromised.
struct VersionsWanted {
  SectionId section;  ///< generator
  ReplicaIndex receiver;
  ProcessId process;
  Epoch epoch;  ///< epoch of the ring
  StepId first;
  RingAddress ring;
};

/// Rank 0 to every supervisor: these placements move, because processes are lost or have joined. All replicas of
/// repeatable sections begin anew, under this epoch. Answered with PlacementsTaken.
struct MovePlacements {
  Epoch epoch;
  std::vector<ProcessId> lost;
  std::vector<ProcessId> left;  ///< processes that end by themselves
  std::vector<Placement> moved;
};
/// The replicas of a process, and the rings of replicas that have not begun anew.
struct PlacementsTaken {
  Epoch epoch;
  ProcessId process;
  std::vector<ReplicaAddress> replicas;
  std::vector<RingArrivals> arrivals;
};
/// The answer to RenewInputs.
struct InputsRenewed {
  ReplicaAddress address;
  std::vector<RingArrivals> arrivals;
};
/// Rank 0 to every supervisor, which passes it on to replicas that have not begun anew: the addresses after a move.
/// Supervisors answer with PlacementsReady.
struct PlacementsMoved {
  Epoch epoch;
  Directory directory;
};
/// To the coordinator: all placements have moved.
struct BeginAgain {
  std::string reason;  ///< "process 2 takes section 'teacher' replica 1"
  Directory directory;
  std::vector<RingArrivals> arrivals;
};

/// A process has connected its network and its replicas.
struct ProcessReady {
  ProcessId process;
};

}  // namespace maestro
