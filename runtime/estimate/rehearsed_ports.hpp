// SPDX-License-Identifier: Apache-2.0
// The ports of all lanes of a rehearsal: slots of receivers, blocks of senders, and the pieces between them, under the
// rules of a run's ports. Pure; not thread-safe.
//
// PV-1 (window): a piece leaves when its sequence is among the first `released + slots` sequences of its receiver, as
//       far as its sender has learned of releases (CL-1).
// PV-2 (blocks): a pass has a block of each port that it sends from. The block is free again when every piece of it has
//       been sent, or, of pieces passed by reference, released by the receiver.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/estimate/virtual_clock.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/credit_ledger.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/lane_key.hpp"
#include "runtime/schedule/replica_lane.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// How long a piece, or a credit, is on its way.
struct TransferTime {
  double ms = 0;
  bool by_reference = true;  ///< the receiver reads the sender's block
  double sent_ms = 0;        ///< until the block of a written piece is free, which may be before the piece has arrived
};

/// Of `rows` rows from a lane to a lane; 0 rows: of a credit.
using TransferEstimate =
    std::function<TransferTime(const LaneKey& from, const LaneKey& to, Channel channel, std::int64_t rows)>;

struct RehearsedPortsOptions {
  const SectionGraph* graph = nullptr;
  FlowLimits limits;
  TransferEstimate transfer;  ///< may be empty: by reference, in no time
  /// A sequence is complete at a rank of the lane.
  std::function<void(const LaneKey& lane, Channel channel, std::uint64_t sequence, LayoutRank rank)> arrived;
  /// A block of the lane is free again. Called at any time: must only add an event.
  std::function<void(const LaneKey& lane)> freed;
};

class RehearsedPorts {
 public:
  /// `clock` and the graph outlive it.
  RehearsedPorts(VirtualClock& clock, RehearsedPortsOptions options);

  [[nodiscard]] BuffersFree free(const LaneKey& lane) const;
  /// The micro-batch was announced to its lane.
  void expect(const MicroBatchPlan& plan);
  /// Takes the blocks of a pass in these directions, which starts.
  void acquire(const MicroBatchPlan& plan, bool forward, bool backward);
  /// The pass has ended: its pieces leave as the windows allow.
  void send(const MicroBatchPlan& plan);
  /// The micro-batch has retired: its slots are free.
  void release(const MicroBatchPlan& plan);

 private:
  using PoolKey = std::tuple<LaneKey, std::string, Direction>;
  using LinkKey = std::tuple<Channel, ReplicaIndex, LayoutRank>;                    // of the receiver
  using Pools = std::map<PoolKey, std::int64_t>;                                    // free blocks
  using Block = std::shared_ptr<void>;                                              // held by its pieces
  using Blocks = std::vector<std::pair<std::pair<std::string, Direction>, Block>>;  // by port
  struct Piece {
    std::uint64_t sequence = 0;
    std::int64_t rows = 0;
    Block block;  // until it is sent, or released
  };
  /// The end of a link at a replica that sends.
  struct Sender {
    std::uint64_t window = 0;  // sequences below may leave
    std::multimap<std::uint64_t, Piece> waiting;
  };
  struct Arrival {
    std::int64_t due = -1;  // pieces; -1: not announced
    std::int64_t here = 0;
    std::vector<Block> held;
  };
  struct Link {
    ReleaseLedger released;
    std::uint64_t slots = 1;
    std::map<ReplicaIndex, Sender> senders = {};
    std::map<std::uint64_t, Arrival> arrivals = {};
  };
  [[nodiscard]] std::pair<std::string, Direction> port_of(Channel channel) const {
    return {options_.graph->sender_port(channel), channel.direction};
  }
  [[nodiscard]] LaneKey receiver(const LinkKey& key) const {
    return {options_.graph->receiver(std::get<Channel>(key)), std::get<ReplicaIndex>(key)};
  }
  [[nodiscard]] LaneKey sender(const LinkKey& key, ReplicaIndex replica) const {
    return {options_.graph->sender(std::get<Channel>(key)), replica};
  }
  [[nodiscard]] TransferTime time(const LaneKey& from, const LaneKey& to, Channel channel, std::int64_t rows) const;
  void add_lane(const LaneKey& lane);
  [[nodiscard]] Block take(const PoolKey& pool);
  Sender& sender_of(const LinkKey& key, ReplicaIndex replica);
  void flush(const LinkKey& key, ReplicaIndex from);
  void grant(const LinkKey& key, ReplicaIndex to, std::uint64_t window);
  void arrive(const LinkKey& key, const Piece& piece);
  void check_complete(const LinkKey& key, std::uint64_t sequence);

  VirtualClock* clock_;
  RehearsedPortsOptions options_;
  std::map<LinkKey, Link> links_;
  std::map<LaneKey, Blocks> taken_;                           // of passes that run
  std::shared_ptr<Pools> pools_ = std::make_shared<Pools>();  // the last member: blocks outlive it, in events
};

}  // namespace maestro
