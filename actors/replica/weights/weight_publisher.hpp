// SPDX-License-Identifier: Apache-2.0
// The sending end of an edge of weights, at a replica of the section that trains them: copies the values before a step,
// and writes its share of them into the rings of all generators.
//
// WU-1 (no live reads): a version is copied by a job on the ranks' devices, and nothing changes the copy.
// WU-2 (versions in order): versions leave in the order of their steps, each when the receiver has room for it.
// WU-3 (kept): the last staleness + 1 versions stay here, for checkpoints (replica 0, whole) and for generators that
//       begin anew.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/messages/run_actor.hpp"
#include "actors/replica/piece_writer.hpp"
#include "actors/replica/port_options.hpp"
#include "actors/replica/replica_rank.hpp"
#include "runtime/schedule/version_map.hpp"
#include "sections/weight_version.hpp"

namespace maestro {

/// Versions for a checkpoint: blocks of the replica's ranks, in the order of `map`.
struct KeptVersions {
  struct Version {
    StepId step;
    std::vector<Buffer> blocks;
  };
  VersionMap map;
  DType dtype = DType::f32;
  std::vector<Version> versions;
  /// Puts a version together.
  [[nodiscard]] WholeWeights whole(const Version& version) const;
};

/// Not thread-safe; belongs to the replica's actor.
class WeightPublisher {
 public:
  /// `spec` outlives it; the versions of the checkpoint are taken out of it. `self` receives BufferFree and the ends of
  /// writes.
  WeightPublisher(ReplicaSpec& spec, const caf::actor& self);
  /// Returns whether the section has an edge of weights.
  [[nodiscard]] bool sends() const { return spec_->graph->publishes(spec_->section); }
  /// Returns the blocks of the replica's ranks, for its address: replica 0 states them for all.
  [[nodiscard]] const std::vector<WeightBlock>& blocks() const { return blocks_; }
  void connect(const Directory& directory, Outbox outbox);
  /// Sends the versions from `wanted.first` on to a generator that begins. The first one of a later epoch ends the
  /// sending to all generators before.
  Status add(const VersionsWanted& wanted, const caf::actor& generator);
  /// Takes memory for the values before step `version`. Returns false if none is free: BufferFree follows.
  [[nodiscard]] bool begin(StepId version);
  /// Returns the job that copies them on a rank.
  [[nodiscard]] RankJob copy(ReplicaRank& rank) const;
  /// Sends the copies, after the jobs; with the first version the versions of the checkpoint.
  Status send();
  Status credit(const Credit& credit);
  /// Releases the memory of a write that has ended, well or not. Returns whether the write was one of these.
  bool write_ended(std::uint64_t cookie);
  /// Returns whether the write goes to a generator that still takes part.
  [[nodiscard]] bool still_writes(std::uint64_t cookie) const {
    const Connection* const connection = connection_of(cookie);
    return connection != nullptr && connection == &connections_.back();
  }
  /// Returns the versions before step `last` + 1 that later steps still read; nothing on replicas that keep no whole
  /// versions.
  [[nodiscard]] std::optional<KeptVersions> kept(StepId last) const;
  /// Returns whether a checkpoint of this replica would lack versions.
  [[nodiscard]] bool lacks_versions() const;
  /// Releases the generators' handles.
  void leave();

 private:
  /// A rank's part of the sending.
  struct Outlet {
    LayoutRank rank;
    WeightBlock block;
    RowRange copied;  // elements that it copies: its shard, or all for checkpoints
    std::unique_ptr<BufferPool> pool = {};
    std::unique_ptr<Region> region = {};
    std::vector<Buffer> next = {};  // memory of the versions that are being copied, oldest first
  };
  struct Link {
    OutputLink credits;
    caf::actor actor;
    ReplicaIndex receiver;
    bool local = true;
    StepId first = {};         // version with sequence 0
    std::uint32_t number = 0;  // among the links
    PieceTarget target = {};
  };
  /// Links to all generators of an epoch.
  struct Connection {
    Epoch epoch;
    std::uint32_t client = 0;
    std::list<Link> links = {};
    std::unique_ptr<PieceWriter> writer = {};  // after links, which its pieces refer to
  };
  struct Sent {
    StepId step;
    std::vector<Buffer> blocks;  // by outlet
  };
  void add_outlet(LayoutRank rank);
  void begin_anew(Epoch epoch);
  [[nodiscard]] bool keeps_whole() const;
  [[nodiscard]] std::size_t element_bytes() const { return size_of(spec_->weights.dtype); }
  [[nodiscard]] const Connection* connection_of(std::uint64_t cookie) const;
  void queue(Link& link, const Sent& version);
  Status flush(Link& link);

  ReplicaSpec* spec_;
  caf::actor_addr self_;
  std::vector<StoredVersion> stored_;  // of the checkpoint, not sent yet
  std::vector<WeightBlock> blocks_;
  std::vector<Outlet> outlets_;
  std::vector<StepId> copying_;  // steps of Outlet::next
  std::deque<Sent> sent_;
  VersionMap map_;
  Outbox outbox_;
  std::list<Connection> connections_;  // the last one is used; writes of the one before may still end
};

}  // namespace maestro
