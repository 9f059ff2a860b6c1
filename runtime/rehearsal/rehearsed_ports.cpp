// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsed_ports.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "runtime/schedule/port_sizes.hpp"

namespace maestro {

namespace {

const SampleRef any_sample{SampleId(0), 1};  // the numbers of slots and blocks do not depend on rows

}  // namespace

RehearsedPorts::RehearsedPorts(VirtualClock& clock, RehearsedPortsOptions options)
    : clock_(&clock), options_(std::move(options)), ways_(options_.graph->edges().size()) {
  for (std::uint32_t section = 0; section < options_.graph->nodes().size(); ++section) add_lanes(SectionId(section));
}

void RehearsedPorts::add_lanes(SectionId section) {
  const SectionGraph& graph = *options_.graph;
  const PortSizes sizes(graph, {section, {}}, any_sample, options_.limits);
  const GraphNode& node = graph.node(section);
  std::vector<std::string> ports;  // ports by pool
  std::vector<Pool> pools;
  for (const Channel channel : graph.sent(section)) {
    std::size_t pool = 0;
    while (pool < pools.size() &&
           (ports[pool] != graph.sender_port(channel) || pools[pool].direction != channel.direction)) {
      ++pool;
    }
    Way& out = ways_[channel.edge.value()][channel.gradient() ? 1 : 0];
    out.from = section;
    out.pool = static_cast<Number>(pool);
    if (pool < pools.size()) continue;
    ports.push_back(graph.sender_port(channel));
    pools.push_back({sizes.blocks(channel), channel.direction});
  }
  first_lane_.push_back(static_cast<Number>(lanes_.size()));
  for (std::uint32_t replica = 0; replica < node.replicas; ++replica) {
    lanes_.push_back({{section, ReplicaIndex(replica)}, pools, {}});
  }
  for (const Channel channel : graph.received(section)) {
    Way& in = ways_[channel.edge.value()][channel.gradient() ? 1 : 0];
    in.to = section;
    in.links = static_cast<Number>(links_.size());
    in.ranks = static_cast<Number>(node.layout.ranks());
    const auto slots = static_cast<std::uint32_t>(sizes.slots(channel));
    for (std::uint32_t replica = 0; replica < node.replicas; ++replica) {
      for (std::uint32_t rank = 0; rank < in.ranks; ++rank) {
        links_.push_back({channel, ReplicaIndex(replica), LayoutRank(rank), ReleaseLedger(slots), slots});
      }
    }
  }
}

TransferTime RehearsedPorts::time(const LaneKey& from, const LaneKey& to, Channel channel, std::int64_t rows) const {
  return options_.transfer ? options_.transfer(from, to, channel, rows) : TransferTime();
}

BuffersFree RehearsedPorts::free(const LaneKey& lane) const {
  BuffersFree free;
  for (const Pool& pool : lanes_[number(lane)].pools) {
    if (pool.free > 0) continue;
    (pool.direction == Direction::forward ? free.outputs : free.gradients) = false;
  }
  return free;
}

RehearsedPorts::Arrival& RehearsedPorts::arrival(Link& at, std::uint64_t sequence) {
  assert(sequence >= at.first);
  const auto place = static_cast<std::size_t>(sequence - at.first);
  if (place >= at.arrivals.size()) at.arrivals.resize(place + 1);
  return at.arrivals[place];
}

void RehearsedPorts::expect(const MicroBatchPlan& plan) {
  for (const ArrivalPlan& expected : plan.arrivals) {
    Link& at = links_[link_of(expected.channel, plan.replica, expected.rank)];
    Arrival& here = arrival(at, expected.sequence);
    here.due = static_cast<std::int64_t>(expected.pieces.size());
    check_complete(at, expected.sequence, here);
  }
}

void RehearsedPorts::acquire(const MicroBatchPlan& plan, bool forward, bool backward) {
  const Number lane = number({plan.section, plan.replica});
  auto& taken = lanes_[lane].taken;
  for (const PieceOut& piece : plan.pieces) {
    if (!(piece.channel.gradient() ? backward : forward)) continue;
    const Number pool = way(piece.channel).pool;
    if (std::ranges::find(taken, pool, &std::pair<Number, Number>::first) != taken.end()) continue;
    taken.emplace_back(pool, take(lane, pool));
  }
}

RehearsedPorts::Number RehearsedPorts::take(Number lane, Number pool) {
  --lanes_[lane].pools[pool].free;
  return blocks_.put({lane, pool, 1});
}

void RehearsedPorts::drop(Number block) {
  if (block == none || --blocks_[block].holders > 0) return;
  const Block free = blocks_.take(block);
  LanePorts& lane = lanes_[free.lane];
  ++lane.pools[free.pool].free;
  options_.freed(lane.key);
}

void RehearsedPorts::send(const MicroBatchPlan& plan) {
  const auto taken = std::exchange(lanes_[number({plan.section, plan.replica})].taken, {});
  leaving_.clear();
  for (const PieceOut& piece : plan.pieces) {
    const auto block = std::ranges::find(taken, way(piece.channel).pool, &std::pair<Number, Number>::first);
    if (block == taken.end()) continue;  // a pool of the other direction
    const Number number = link_of(piece.channel, piece.receiver, piece.target_rank);
    Link& at = links_[number];
    const bool known = at.turn < leaving_.size() && leaving_[at.turn].second.link == number;
    if (!known) at.turn = static_cast<Number>(leaving_.size());
    ++blocks_[block->second].holders;
    leaving_.emplace_back(at.turn, Piece{number, plan.replica, piece.sequence, piece.rows, block->second});
  }
  std::ranges::stable_sort(leaving_, {}, [](const auto& each) { return std::pair(each.first, each.second.sequence); });
  for (auto& [turn, piece] : leaving_) leave_or_wait(piece);
  for (const auto& [pool, block] : taken) drop(block);
}

RehearsedPorts::Sender* RehearsedPorts::sender_of(Link& at, ReplicaIndex replica, bool waits) {
  const auto found = at.senders.find(replica);
  if (found != at.senders.end()) return &found->second;
  const double credit_ms = time(receiver(at), sender(at, replica), at.channel, 0).ms;
  if (!waits && credit_ms <= 0) return nullptr;
  return &at.senders.try_emplace(replica, Sender{window_of(at), credit_ms, {}}).first->second;
}

void RehearsedPorts::leave_or_wait(Piece piece) {
  Link& at = links_[piece.link];
  const Sender* const known = sender_of(at, piece.from, false);
  const std::uint64_t window = known == nullptr || known->credit_ms <= 0 ? window_of(at) : known->window;
  if (piece.sequence < window) return leave(piece);
  sender_of(at, piece.from, true)->waiting.emplace(piece.sequence, piece);
}

void RehearsedPorts::leave(Piece piece) {
  const Link& at = links_[piece.link];
  const TransferTime takes = time(sender(at, piece.from), receiver(at), at.channel, piece.rows);
  piece.sent = !takes.by_reference && takes.sent_ms == takes.ms;
  if (!takes.by_reference && !piece.sent) {
    clock_->after(takes.sent_ms, [this, block = std::exchange(piece.block, none)] { drop(block); });
  }
  const Number travelling = travelling_.put(piece);
  const double at_ms = clock_->now_ms() + takes.ms;
  if (latest_.last != none && latest_.added == clock_->added() && latest_.at_ms == at_ms) {
    travelling_[latest_.last].next = travelling;
  } else {
    clock_->after(takes.ms, [this, travelling] { arrive(travelling); });
  }
  latest_ = {travelling, at_ms, clock_->added()};
}

void RehearsedPorts::arrive(Number first) {
  for (Number next = first; next != none;) {
    if (next == latest_.last) latest_.last = none;
    Piece piece = travelling_.take(next);
    next = piece.next;
    if (piece.sent) drop(std::exchange(piece.block, none));
    arrive(piece);
  }
}

void RehearsedPorts::arrive(const Piece& piece) {
  Link& at = links_[piece.link];
  Arrival& here = arrival(at, piece.sequence);
  ++here.here;
  if (piece.block != none) here.held.push_back(piece.block);
  check_complete(at, piece.sequence, here);
}

void RehearsedPorts::check_complete(const Link& at, std::uint64_t sequence, const Arrival& arrival) {
  if (arrival.due == arrival.here) options_.arrived(receiver(at), at.channel, sequence, at.rank);
}

void RehearsedPorts::release(const MicroBatchPlan& plan) {
  for (const ArrivalPlan& retired : plan.arrivals) {
    const Number number = link_of(retired.channel, plan.replica, retired.rank);
    Link& at = links_[number];
    Arrival& here = arrival(at, retired.sequence);
    here.released = true;
    for (const Number block : std::exchange(here.held, {})) drop(block);
    for (; !at.arrivals.empty() && at.arrivals.front().released; ++at.first) at.arrivals.pop_front();
    if (!at.released.release(retired.sequence).value_or_throw()) continue;
    const std::uint64_t window = window_of(at);
    for (auto next = at.senders.begin(); next != at.senders.end();) {
      const auto& [replica, known] = *next++;  // a sender without waiting pieces may leave the map
      if (known.credit_ms <= 0) {
        grant(number, replica, window);
      } else {
        clock_->after(known.credit_ms, [this, number, replica = replica, window] { grant(number, replica, window); });
      }
    }
  }
}

void RehearsedPorts::grant(Number link, ReplicaIndex to, std::uint64_t window) {
  Sender& granted = links_[link].senders.at(to);
  granted.window = std::max(granted.window, window);
  auto& waiting = granted.waiting;
  while (!waiting.empty() && waiting.begin()->first < granted.window) {
    leave(waiting.extract(waiting.begin()).mapped());
  }
  if (waiting.empty() && granted.credit_ms <= 0) links_[link].senders.erase(to);
}

}  // namespace maestro
