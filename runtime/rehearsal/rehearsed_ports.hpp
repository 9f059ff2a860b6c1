// SPDX-License-Identifier: Apache-2.0
// The ports of all lanes of a rehearsal: slots of receivers, blocks of senders, and the pieces between them, under the
// rules of a run's ports. Lanes, links and pools are numbered, since a cluster has thousands of each. Pure; not
// thread-safe.
//
// PV-1 (window): a piece leaves when its sequence is among the first `released + slots` sequences of its receiver, as
//       far as its sender has learned of releases (CL-1).
// PV-2 (blocks): a pass has a block of each port that it sends from. The block is free again when every piece of it has
//       been sent, or, of pieces passed by reference, released by the receiver.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/rehearsal/slab.hpp"
#include "runtime/rehearsal/virtual_clock.hpp"
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

/// Of `rows` rows from a lane to a lane; 0 rows: of a credit. Equal calls return equal times.
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
  /// `clock` and the graph outlive it; it outlives the events that it adds, or they do not happen.
  RehearsedPorts(VirtualClock& clock, RehearsedPortsOptions options);
  RehearsedPorts(const RehearsedPorts&) = delete;  // events refer to it
  RehearsedPorts& operator=(const RehearsedPorts&) = delete;

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
  using Number = std::uint32_t;  // of a lane, a link, a pool or a block
  static constexpr Number none = ~Number{0};
  /// A channel of the graph: the same for all replicas.
  struct Way {
    SectionId from;
    SectionId to;
    Number pool = 0;   // of those of a sending lane
    Number links = 0;  // the first of all receivers
    Number ranks = 0;  // of a receiver
  };
  /// The blocks of a port and direction of a lane.
  struct Pool {
    std::int64_t free = 0;
    Direction direction = Direction::forward;
  };
  struct LanePorts {
    LaneKey key;
    std::vector<Pool> pools;
    std::vector<std::pair<Number, Number>> taken;  // pool and block, of the pass that runs
  };
  /// A block in use: held by the pass and by its pieces.
  struct Block {
    Number lane = 0;
    Number pool = 0;
    std::uint32_t holders = 0;
  };
  struct Piece {
    Number link = 0;
    ReplicaIndex from;
    std::uint64_t sequence = 0;
    std::int64_t rows = 0;
    Number block = none;  // until it is sent, or released
    bool sent = false;    // when it arrives
    Number next = none;   // that arrives at the same time
  };
  /// Pieces that leave one after another and arrive at the same time, in one event.
  struct Travel {
    Number last = none;
    double at_ms = 0;
    std::uint64_t added = 0;  // VirtualClock::added() behind it
  };
  /// The end of a link at a replica that sends.
  struct Sender {
    std::uint64_t window = 0;  // sequences below may leave
    double credit_ms = 0;
    std::multimap<std::uint64_t, Piece> waiting;
  };
  struct Arrival {
    std::int64_t due = -1;  // pieces; -1: not announced
    std::int64_t here = 0;
    bool released = false;
    std::vector<Number> held;  // blocks
  };
  /// A rank of a receiver.
  struct Link {
    Channel channel;
    ReplicaIndex replica;
    LayoutRank rank;
    ReleaseLedger released;
    std::uint64_t slots = 1;
    std::map<ReplicaIndex, Sender> senders = {};  // those without delay only while pieces wait
    std::uint64_t first = 0;                      // sequence of the first arrival
    std::deque<Arrival> arrivals = {};
    Number turn = 0;  // in send()
  };
  [[nodiscard]] const Way& way(Channel channel) const {
    return ways_[channel.edge.value()][channel.gradient() ? 1 : 0];
  }
  [[nodiscard]] Number number(const LaneKey& lane) const {
    return first_lane_[lane.section.value()] + lane.replica.value();
  }
  [[nodiscard]] Number link_of(Channel channel, ReplicaIndex receiver, LayoutRank rank) const {
    return way(channel).links + receiver.value() * way(channel).ranks + rank.value();
  }
  [[nodiscard]] LaneKey receiver(const Link& at) const { return {way(at.channel).to, at.replica}; }
  [[nodiscard]] LaneKey sender(const Link& at, ReplicaIndex replica) const { return {way(at.channel).from, replica}; }
  [[nodiscard]] TransferTime time(const LaneKey& from, const LaneKey& to, Channel channel, std::int64_t rows) const;
  void add_lanes(SectionId section);
  static Arrival& arrival(Link& at, std::uint64_t sequence);
  [[nodiscard]] Number take(Number lane, Number pool);
  void drop(Number block);
  [[nodiscard]] static std::uint64_t window_of(const Link& at) { return at.released.released() + at.slots; }
  /// Returns the sender's end; of a sender whose credits take no time, null while none of its pieces waits.
  Sender* sender_of(Link& at, ReplicaIndex replica, bool waits);
  void leave_or_wait(Piece piece);
  void leave(Piece piece);
  void grant(Number link, ReplicaIndex to, std::uint64_t window);
  void arrive(Number first);
  void arrive(const Piece& piece);
  void check_complete(const Link& at, std::uint64_t sequence, const Arrival& arrival);

  VirtualClock* clock_;
  RehearsedPortsOptions options_;
  std::vector<std::array<Way, 2>> ways_;  // by edge and direction
  std::vector<Number> first_lane_;        // by section
  std::vector<LanePorts> lanes_;
  std::vector<Link> links_;
  Slab<Block> blocks_;
  Slab<Piece> travelling_;
  Travel latest_;
  std::vector<std::pair<Number, Piece>> leaving_;  // in send(): with the turn of the link
};

}  // namespace maestro
