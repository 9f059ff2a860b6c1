// SPDX-License-Identifier: Apache-2.0
// Who is where: what processes and replicas tell each other about themselves before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/caf_compat.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/process_identity.hpp"
#include "transport/region.hpp"

namespace maestro {

/// A ring of slots that one rank of a replica receives into.
struct RingAddress {
  EdgeId edge;
  bool gradient = false;
  ReplicaIndex receiver;
  std::uint32_t layout_rank = 0;
  std::uint32_t ring = 0;  ///< number inside the receiving process: the immediate's edge bits
  std::uint32_t slots = 1;
  std::uint32_t max_pieces = 1;
  std::uint64_t payload_bytes = 0;
  RemoteRegion region;  ///< empty when nobody writes remotely
  // Where slots also have a payload in memory of a device (SL-4):
  std::uint32_t device_ring = 0;  ///< the ring's second number, of whole pieces there
  std::string device_memory;      ///< for processes of this host (DeviceBackend::export_memory); empty: not shared
  RemoteRegion device_region;     ///< for writes; empty: they do not reach it
};

/// What the ranks of one place exchange: gradients among the replicas of a section; gradients of a parameter that two
/// stages hold; moments that replicas share, for a checkpoint.
enum class ReductionKind : std::uint8_t { replicas, tie, moments };
constexpr std::size_t reduction_kinds = 3;

/// Memory that the other members of a reduction write gradients into; or the group in which their devices add them.
struct ReductionAddress {
  std::uint32_t parts_ring = 0;     ///< immediate of a part of the shard; slot = sending member
  std::uint32_t sums_ring = 0;      ///< immediate of a finished sum; slot = sending member
  RemoteRegion parts;               ///< one shard per sending member
  RemoteRegion gradients;           ///< the flat gradient itself
  std::vector<std::uint8_t> group;  ///< DeviceBackend::make_group_id() of member 0; of others empty
};

struct ReplicaAddress {
  SectionId section;
  ReplicaIndex replica;
  ProcessRank rank;
  caf::actor actor;
  std::vector<RingAddress> rings;            ///< of all ranks
  std::vector<ReductionAddress> reductions;  ///< by rank, in it by ReductionKind
};

/// A process is there: rank 0 watches it from now on, while it builds its sections.
struct ProcessJoined {
  ProcessRank rank;
  ProcessIdentity process;
  std::string host;  ///< as people call it; empty where the job has one host only
  caf::actor supervisor;
};
/// A process introduces itself to rank 0 when it is built.
struct ProcessHello {
  ProcessRank rank;
  ProcessIdentity process;  ///< pid 0: not known yet
  std::string host;         ///< as in ProcessJoined
  std::string build;        ///< version and job; all processes must agree
  std::string endpoint;     ///< opaque address; empty without a network
  std::string actors_host;
  std::uint16_t actors_port = 0;  ///< where its supervisor is published
  caf::actor supervisor;
  std::vector<ReplicaAddress> replicas;
};

/// Where a process's supervisor is published.
struct Neighbour {
  ProcessRank rank;
  std::string host;
  std::uint16_t port = 0;
};
/// All processes, for each to connect to those before it. Handles of actors come later, in the directory: those that
/// come before there is a connection could die with one that fails.
struct Neighbours {
  std::vector<Neighbour> all;
};
/// The first words on a new connection, and the answer to them: once both have come it holds.
struct Greeting {
  ProcessRank rank;
};
/// A process is connected to all others.
struct NeighboursMet {
  ProcessRank rank;
};

/// Between supervisors, several times in each `peer_timeout`: the sender runs.
struct Heartbeat {
  ProcessRank rank;
};

/// Rank 0 tells everyone about everyone.
struct Directory {
  std::vector<ProcessHello> processes;
  caf::actor coordinator;
};

/// A process is wired up.
struct ProcessReady {
  ProcessRank rank;
};

MAESTRO_INSPECT(ProcessIdentity, x.pid_namespace, x.pid, x.started)
MAESTRO_INSPECT(RemoteRegion, x.key, x.base, x.bytes)
MAESTRO_INSPECT(RingAddress, x.edge, x.gradient, x.receiver, x.layout_rank, x.ring, x.slots, x.max_pieces,
                x.payload_bytes, x.region, x.device_ring, x.device_memory, x.device_region)
MAESTRO_INSPECT(ReductionAddress, x.parts_ring, x.sums_ring, x.parts, x.gradients, x.group)
MAESTRO_INSPECT(ReplicaAddress, x.section, x.replica, x.rank, x.actor, x.rings, x.reductions)
MAESTRO_INSPECT(ProcessJoined, x.rank, x.process, x.host, x.supervisor)
MAESTRO_INSPECT(ProcessHello, x.rank, x.process, x.host, x.build, x.endpoint, x.actors_host, x.actors_port,
                x.supervisor, x.replicas)
MAESTRO_INSPECT(Directory, x.processes, x.coordinator)
MAESTRO_INSPECT(Neighbour, x.rank, x.host, x.port)
MAESTRO_INSPECT(Neighbours, x.all)
MAESTRO_INSPECT(Greeting, x.rank)
MAESTRO_INSPECT(NeighboursMet, x.rank)
MAESTRO_INSPECT(Heartbeat, x.rank)
MAESTRO_INSPECT(ProcessReady, x.rank)

}  // namespace maestro
