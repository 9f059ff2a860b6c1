// SPDX-License-Identifier: Apache-2.0
#include "runtime/estimate/rehearsed_ports.hpp"

#include <algorithm>

#include "runtime/schedule/port_sizes.hpp"

namespace maestro {

namespace {
const SampleRef any_sample{SampleId(0), 1};  // numbers of slots and blocks do not depend on rows
}  // namespace

RehearsedPorts::RehearsedPorts(VirtualClock& clock, RehearsedPortsOptions options)
    : clock_(&clock), options_(std::move(options)) {
  const auto& nodes = options_.graph->nodes();
  for (std::uint32_t section = 0; section < nodes.size(); ++section) {
    for (std::uint32_t replica = 0; replica < nodes[section].replicas; ++replica) {
      add_lane({SectionId(section), ReplicaIndex(replica)});
    }
  }
}

void RehearsedPorts::add_lane(const LaneKey& lane) {
  const SectionGraph& graph = *options_.graph;
  const PortSizes sizes(graph, lane.section, any_sample, options_.limits);
  for (const Channel channel : graph.sent(lane.section)) {
    const auto [port, direction] = port_of(channel);
    pools_->try_emplace({lane, port, direction}, sizes.blocks(channel));
  }
  for (const Channel channel : graph.received(lane.section)) {
    const auto slots = static_cast<std::uint32_t>(sizes.slots(channel));
    for (std::uint32_t rank = 0; rank < graph.node(lane.section).layout.ranks(); ++rank) {
      links_.try_emplace({channel, lane.replica, LayoutRank(rank)}, Link{ReleaseLedger(slots), slots});
    }
  }
}

TransferTime RehearsedPorts::time(const LaneKey& from, const LaneKey& to, Channel channel, std::int64_t rows) const {
  return options_.transfer ? options_.transfer(from, to, channel, rows) : TransferTime();
}

BuffersFree RehearsedPorts::free(const LaneKey& lane) const {
  BuffersFree free;
  for (auto pool = pools_->lower_bound({lane, {}, Direction::forward}); pool != pools_->end(); ++pool) {
    const auto& [owner, port, direction] = pool->first;
    if (owner != lane) break;
    if (pool->second > 0) continue;
    (direction == Direction::forward ? free.outputs : free.gradients) = false;
  }
  return free;
}

RehearsedPorts::Sender& RehearsedPorts::sender_of(const LinkKey& key, ReplicaIndex replica) {
  Link& at = links_.at(key);
  const auto [found, fresh] = at.senders.try_emplace(replica);
  if (fresh) found->second.window = at.released.released() + at.slots;
  return found->second;
}

void RehearsedPorts::expect(const MicroBatchPlan& plan) {
  for (const ArrivalPlan& arrival : plan.arrivals) {
    const LinkKey key{arrival.channel, plan.replica, arrival.rank};
    links_.at(key).arrivals[arrival.sequence].due = static_cast<std::int64_t>(arrival.pieces.size());
    check_complete(key, arrival.sequence);
  }
}

void RehearsedPorts::acquire(const MicroBatchPlan& plan, bool forward, bool backward) {
  const LaneKey lane{plan.section, plan.replica};
  Blocks blocks;
  for (const PieceOut& piece : plan.pieces) {
    if (!(piece.channel.gradient() ? backward : forward)) continue;
    const auto port = port_of(piece.channel);
    if (std::ranges::find(blocks, port, &Blocks::value_type::first) != blocks.end()) continue;
    blocks.emplace_back(port, take({lane, port.first, port.second}));
  }
  taken_[lane] = std::move(blocks);
}

RehearsedPorts::Block RehearsedPorts::take(const PoolKey& pool) {
  --pools_->at(pool);
  return {nullptr, [this, pool, pools = std::weak_ptr(pools_)](void*) {
            if (const auto alive = pools.lock()) {
              ++alive->at(pool);
              options_.freed(std::get<LaneKey>(pool));
            }
          }};
}

void RehearsedPorts::send(const MicroBatchPlan& plan) {
  const auto taken = taken_.extract(LaneKey{plan.section, plan.replica});
  std::vector<LinkKey> used;
  for (const PieceOut& piece : plan.pieces) {
    const auto block = std::ranges::find(taken.mapped(), port_of(piece.channel), &Blocks::value_type::first);
    if (block == taken.mapped().end()) continue;  // of the other direction
    used.emplace_back(piece.channel, piece.receiver, piece.target_rank);
    sender_of(used.back(), plan.replica)
        .waiting.emplace(piece.sequence, Piece{piece.sequence, piece.rows, block->second});
  }
  for (const LinkKey& key : used) flush(key, plan.replica);
}

void RehearsedPorts::flush(const LinkKey& key, ReplicaIndex from) {
  Sender& at = sender_of(key, from);
  while (!at.waiting.empty() && at.waiting.begin()->first < at.window) {
    Piece piece = std::move(at.waiting.extract(at.waiting.begin()).mapped());
    const TransferTime takes = time(sender(key, from), receiver(key), std::get<Channel>(key), piece.rows);
    if (!takes.by_reference) clock_->after(takes.sent_ms, [block = std::exchange(piece.block, nullptr)] {});
    clock_->after(takes.ms, [this, key, piece] { arrive(key, piece); });
  }
}

void RehearsedPorts::arrive(const LinkKey& key, const Piece& piece) {
  Arrival& arrival = links_.at(key).arrivals[piece.sequence];
  ++arrival.here;
  arrival.held.push_back(piece.block);  // of a piece that was written: none
  check_complete(key, piece.sequence);
}

void RehearsedPorts::check_complete(const LinkKey& key, std::uint64_t sequence) {
  const Arrival& arrival = links_.at(key).arrivals.at(sequence);
  if (arrival.due != arrival.here) return;
  options_.arrived(receiver(key), std::get<Channel>(key), sequence, std::get<LayoutRank>(key));
}

void RehearsedPorts::release(const MicroBatchPlan& plan) {
  for (const ArrivalPlan& arrival : plan.arrivals) {
    const LinkKey key{arrival.channel, plan.replica, arrival.rank};
    Link& at = links_.at(key);
    at.arrivals.erase(arrival.sequence);
    if (!at.released.release(arrival.sequence).value_or_throw()) continue;
    const std::uint64_t window = at.released.released() + at.slots;
    for (const auto& [from, known] : at.senders) {
      const TransferTime takes = time(receiver(key), sender(key, from), arrival.channel, 0);
      if (takes.ms <= 0) {
        grant(key, from, window);
      } else {
        clock_->after(takes.ms, [this, key, replica = from, window] { grant(key, replica, window); });
      }
    }
  }
}

void RehearsedPorts::grant(const LinkKey& key, ReplicaIndex to, std::uint64_t window) {
  Sender& granted = sender_of(key, to);
  granted.window = std::max(granted.window, window);
  flush(key, to);
}

}  // namespace maestro
