// SPDX-License-Identifier: Apache-2.0
// The ports of all lanes in a rehearsal: receivers' slots, senders' blocks, and the pieces between them, with the rules
// of a run's ports. Lanes, links and pools are numbered, since a cluster has thousands of each. Pure; not thread-safe.
//
// PV-1 (window): a piece leaves when its sequence is among its receiver's first `released + slots` sequences, as far as
//       its sender has received releases (CL-1).
// PV-2 (blocks): a pass holds a block of each port that it sends from. The block is free again when all its pieces have
//       been sent, or, if passed by reference, released by the receiver.
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

/// The time that a piece or a credit travels.
struct TransferTime {
  double ms = 0;
  bool by_reference = true;  ///< the receiver reads the sender's block
  double sent_ms = 0;        ///< time until a written piece's block is free, possibly before the piece has arrived
};

/// Returns the time of `rows` rows between two lanes, or for 0 rows, of a credit. Equal calls return equal times.
using TransferEstimate =
    std::function<TransferTime(const LaneKey& from, const LaneKey& to, Channel channel, std::int64_t rows)>;

struct RehearsedPortsOptions {
  const SectionGraph* graph = nullptr;
  FlowLimits limits;
  TransferEstimate transfer;  ///< empty: by reference, without delay
  /// Called when a sequence is complete at a rank of the lane.
  std::function<void(const LaneKey& lane, Channel channel, std::uint64_t sequence, LayoutRank rank)> arrived;
  /// Called when a block of the lane is free again, at any time: must only add an event.
  std::function<void(const LaneKey& lane)> freed;
};

class RehearsedPorts {
 public:
  /// Makes empty ports; `clock` and the graph outlive them. Events that they have added must not run after their end.
  RehearsedPorts(VirtualClock& clock, RehearsedPortsOptions options);
  RehearsedPorts(const RehearsedPorts&) = delete;  // events refer to it
  RehearsedPorts& operator=(const RehearsedPorts&) = delete;

  [[nodiscard]] BuffersFree free(const LaneKey& lane) const;
  /// Takes note of a micro-batch that was announced to its lane.
  void expect(const MicroBatchPlan& plan);
  /// Takes the blocks of a starting pass in these directions.
  void acquire(const MicroBatchPlan& plan, bool forward, bool backward);
  /// Sends the pieces of an ended pass as the windows allow.
  void send(const MicroBatchPlan& plan);
  /// Frees the slots of a retired micro-batch.
  void release(const MicroBatchPlan& plan);

 private:
  using Number = std::uint32_t;  // number of a lane, link, pool or block
  static constexpr Number none = ~Number{0};
  /// A channel in the graph: the same for all replicas.
  struct Way {
    SectionId from;
    SectionId to;
    Number pool = 0;   // pool number within a sending lane
    Number links = 0;  // first link over all receivers
    Number ranks = 0;  // ranks per receiver
  };
  /// The blocks of a lane's port in a direction.
  struct Pool {
    std::int64_t free = 0;
    Direction direction = Direction::forward;
  };
  struct LanePorts {
    LaneKey key;
    std::vector<Pool> pools;
    std::vector<std::pair<Number, Number>> taken;  // pool and block of the running pass
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
    Number block = none;  // held until the piece is sent or released
    bool sent = false;    // the block becomes free at the arrival
    Number next = none;   // next piece that arrives at the same time
  };
  /// Pieces that leave one after another and arrive at the same time, in one event.
  struct Travel {
    Number last = none;
    double at_ms = 0;
    std::uint64_t added = 0;  // VirtualClock::added() after its event
  };
  /// The end of a link at a sending replica.
  struct Sender {
    std::uint64_t window = 0;  // smaller sequences may leave
    double credit_ms = 0;
    std::multimap<std::uint64_t, Piece> waiting;
  };
  struct Arrival {
    std::int64_t due = -1;  // expected pieces; -1: not announced
    std::int64_t here = 0;
    bool released = false;
    std::vector<Number> held;  // blocks of pieces passed by reference
  };
  /// A rank of a receiver.
  struct Link {
    Channel channel;
    ReplicaIndex replica;
    LayoutRank rank;
    ReleaseLedger released;
    std::uint64_t slots = 1;
    std::map<ReplicaIndex, Sender> senders = {};  // without delay, present only while pieces wait
    std::uint64_t first = 0;                      // sequence of the first arrival
    std::deque<Arrival> arrivals = {};
    Number turn = 0;  // position in send()
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
  /// Returns the sender's end; null if the sender's credits take no time and none of its pieces waits.
  Sender* sender_of(Link& at, ReplicaIndex replica, bool waits);
  void leave_or_wait(Piece piece);
  void leave(Piece piece);
  void grant(Number link, ReplicaIndex to, std::uint64_t window);
  void arrive(Number first);
  void arrive(const Piece& piece);
  void check_complete(const Link& at, std::uint64_t sequence, const Arrival& arrival);

  VirtualClock* clock_;
  RehearsedPortsOptions options_;
  std::vector<std::array<Way, 2>> ways_;  // channels by edge and direction
  std::vector<Number> first_lane_;        // first lane by section
  std::vector<LanePorts> lanes_;
  std::vector<Link> links_;
  Slab<Block> blocks_;
  Slab<Piece> travelling_;
  Travel latest_;
  std::vector<std::pair<Number, Piece>> leaving_;  // pieces in send(), with the turn of their link
};

}  // namespace maestro
