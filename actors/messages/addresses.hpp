// SPDX-License-Identifier: Apache-2.0
// Addresses that processes and replicas exchange before the first step. Holds handles of actors.
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

namespace maestro {

struct ReplicaAddress {
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  caf::actor actor;
  std::vector<RingAddress> rings;            ///< of all ranks of the replica
  std::vector<ReductionAddress> reductions;  ///< by rank, in it by ReductionKind

  [[nodiscard]] const ReductionAddress& reduction(LayoutRank layout_rank, ReductionKind kind) const {
    return reductions.at(layout_rank.value() * reduction_kinds + static_cast<std::size_t>(kind));
  }
};

/// The process of a replica.
struct Placement {
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  friend auto operator<=>(const Placement&, const Placement&) = default;
};

/// A process has started: rank 0 watches it from now on, while it builds its sections.
struct ProcessJoined {
  ProcessId process;
  ProcessIdentity identity;
  std::string host;  ///< as named by the user; empty in a job on a single host
  caf::actor supervisor;
};
/// Sent to rank 0 by a process that is built.
struct ProcessInfo {
  ProcessId process;
  ProcessIdentity identity;  ///< pid 0: not yet received
  std::string host;          ///< as in ProcessJoined
  std::string build;         ///< version and job; all processes must agree
  std::string endpoint;      ///< opaque address; empty without a network
  std::string actors_host;
  std::uint16_t actors_port = 0;  ///< where its supervisor is published
  caf::actor supervisor;
  std::vector<ReplicaAddress> replicas;
  std::vector<std::string> devices;  ///< of the replicas of a process that has joined a running job
};

/// Where a process's supervisor is published.
struct PeerAddress {
  ProcessId process;
  std::string host;
  std::uint16_t port = 0;
};
/// All processes; each connects to the processes before it. Handles of actors follow later, in the directory: a handle
/// received before its connection exists could break with a connection that fails.
struct PeerList {
  std::vector<PeerAddress> all;
  bool late = false;  ///< the receiver joins a running job: it connects to all, and no other process is to come
};
/// First message on a new connection, and its answer: after both the connection is established.
struct Ping {
  ProcessId process;
};
/// A process is connected to all others.
struct PeersConnected {
  ProcessId process;
};

/// Between supervisors, several times in each `peer_timeout`: the sender is alive.
struct Heartbeat {
  ProcessId process;
};

/// Sent by rank 0 to every process: the addresses of all processes.
struct Directory {
  std::vector<ProcessInfo> processes;
  caf::actor coordinator;

  /// Returns the replicas of all processes, which live as long as this. (clang 14 has no views of gcc 12's library.)
  [[nodiscard]] std::vector<std::reference_wrapper<const ReplicaAddress>> replicas() const {
    std::vector<std::reference_wrapper<const ReplicaAddress>> all;
    for (const ProcessInfo& process : processes)
      all.insert(all.end(), process.replicas.begin(), process.replicas.end());
    return all;
  }
};

/// Rank 0 to every supervisor: these placements move, as processes are lost or have come. All replicas of repeatable
/// sections begin anew, under this epoch. Answered with PlacementsTaken.
struct MovePlacements {
  Epoch epoch;
  std::vector<ProcessId> lost;
  std::vector<ProcessId> left;  ///< these end by themselves
  std::vector<Placement> moved;
};
/// The replicas of a process, and the rings of those that have not begun anew.
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
/// Rank 0 to every supervisor, and on to replicas that have not begun anew: the addresses after a move. Supervisors
/// answer with PlacementsReady.
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
