// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/weights/weight_publisher.hpp"

#include <algorithm>
#include <utility>

#include "actors/services/write_cookie.hpp"
#include "runtime/collective/reduction_round.hpp"

namespace maestro {

namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Returns the replicas of all generators that take the section's weights.
std::uint32_t receivers_of(const SectionGraph& graph, SectionId section) {
  std::int64_t receivers = 0;
  for (const GraphRegister& each : graph.registers()) {
    if (each.from == section) receivers += graph.node(each.to).replicas;
  }
  return static_cast<std::uint32_t>(receivers);
}

}  // namespace

WholeWeights KeptVersions::whole(const Version& version) const {
  if (version.blocks.size() == 1) {
    return whole_weights(map, ConstTensor(version.blocks.front().data(), dtype, Shape{map.elements(), 1}));
  }
  const std::size_t size = size_of(dtype);
  AlignedMemory joined(static_cast<std::size_t>(map.elements()) * size);
  std::size_t at = 0;
  for (const WeightPiece& piece : map.pieces()) {  // one a rank: replica 0 holds whole blocks
    const std::size_t bytes = static_cast<std::size_t>(piece.own.count) * size;
    std::copy_n(version.blocks[at++].data(), bytes, joined.data() + static_cast<std::size_t>(piece.target) * size);
  }
  return whole_weights(map, ConstTensor(joined.data(), dtype, Shape{map.elements(), 1}));
}

WeightPublisher::WeightPublisher(ReplicaSpec& spec, const caf::actor& self)
    : spec_(&spec), self_(caf::actor_cast<caf::actor_addr>(self)), stored_(std::exchange(spec.weights.stored, {})) {
  if (!sends()) return;
  const std::uint32_t receivers = receivers_of(*spec.graph, spec.section);
  for (std::uint32_t rank = 0; rank < spec.ranks.size(); ++rank) {
    if (rank < spec.graph->node(spec.section).layout.holders()) add_outlet(LayoutRank(rank));
  }
  const auto freed = [weak = self_] {
    if (const auto alive = caf::actor_cast<caf::actor>(weak)) send_from_outside(alive, BufferFree{});
  };
  const auto versions = static_cast<std::size_t>(spec.weights.staleness) + 2;  // kept ones, and one that is copied
  for (Outlet& outlet : outlets_) {
    const std::size_t bytes = aligned(static_cast<std::size_t>(outlet.copied.count) * element_bytes());
    outlet.pool = std::make_unique<BufferPool>(bytes + receivers * PieceWriter::header_bytes, versions, freed);
    if (!spec.remote) continue;
    outlet.region = spec.network->register_memory(outlet.pool->memory(), outlet.pool->memory_bytes());
  }
}

void WeightPublisher::add_outlet(LayoutRank rank) {
  const GraphNode& node = spec_->graph->node(spec_->section);
  SectionRunner& runner = *spec_->ranks[rank.value()].runner;
  WeightBlock block{spec_->section, rank, node.replicas, sent_weights(runner.section(), runner.context().parallel)};
  blocks_.push_back(block);
  const auto elements = static_cast<std::size_t>(block.elements());
  const ShardRange shard = shard_range(elements, static_cast<std::size_t>(node.replicas), spec_->replica.value());
  const RowRange own{static_cast<std::int64_t>(shard.first), static_cast<std::int64_t>(shard.count)};
  const RowRange copied = keeps_whole() ? RowRange{0, block.elements()} : own;
  if (copied.count == 0) return;
  outlets_.push_back({rank, std::move(block), copied});
}

bool WeightPublisher::keeps_whole() const {
  return spec_->weights.staleness > 0 && spec_->replica == ReplicaIndex(0);
}

bool WeightPublisher::lacks_versions() const {
  return sends() && spec_->weights.staleness > 0 && spec_->replica != ReplicaIndex(0);
}

void WeightPublisher::connect(const Directory& directory, Outbox outbox) {
  if (!sends()) return;
  outbox_ = std::move(outbox);
  std::vector<WeightBlock> blocks;
  const std::string& section = spec_->graph->node(spec_->section).section_name();
  for (const ReplicaAddress& peer : directory.replicas()) {
    if (peer.replica == ReplicaIndex(0) && spec_->graph->node(peer.section).section_name() == section) {
      std::ranges::copy(peer.weights, std::back_inserter(blocks));
    }
  }
  map_ = VersionMap(std::move(blocks));
}

void WeightPublisher::begin_anew(Epoch epoch) {
  if (connections_.size() > 1) connections_.pop_front();
  for (Connection& former : connections_) {
    for (Link& link : former.links) {
      link.actor = nullptr;
      link.credits = OutputLink(former.epoch, 1, 1);  // releases what has not left
    }
  }
  Connection& made = connections_.emplace_back(Connection{epoch, spec_->network->next_client()});
  if (const auto self = caf::actor_cast<caf::actor>(self_)) spec_->network->route_client(made.client, self);
  PieceWriterOptions writing;
  writing.epoch = epoch;
  writing.replica = spec_->replica;
  writing.chunk_bytes = spec_->network->options().chunk_bytes;
  writing.client = made.client;
  writing.transferred = outbox_.transferred;
  writing.write = [network = spec_->network](ProcessId to, const WriteRequest& request) {
    network->write(to, request);
  };
  made.writer = std::make_unique<PieceWriter>(std::move(writing));
}

Status WeightPublisher::add(const VersionsWanted& wanted, const caf::actor& generator) {
  if (connections_.empty() || connections_.back().epoch < wanted.epoch) begin_anew(wanted.epoch);
  Connection& connection = connections_.back();
  if (wanted.epoch != connection.epoch) return {};  // a generator of before
  Link link{OutputLink(wanted.epoch, wanted.ring.slots, 2), generator, wanted.receiver};
  link.local = wanted.process == spec_->process && !spec_->network->options().force_rma;
  link.first = wanted.first;
  link.number = static_cast<std::uint32_t>(connection.links.size());
  link.target.process = wanted.process;
  link.target.ring = wanted.ring;
  link.target.name = spec_->graph->node(spec_->section).section_name() + ".weights to " +
                     spec_->graph->node(wanted.section).name + ", replica " + std::to_string(wanted.receiver.value());
  connection.links.push_back(std::move(link));
  for (const Sent& version : sent_) queue(connection.links.back(), version);
  return flush(connection.links.back());
}

void WeightPublisher::leave() {
  for (Connection& connection : connections_) {
    for (Link& link : connection.links) link.actor = nullptr;
  }
}

bool WeightPublisher::begin(StepId version) {
  const std::size_t wanted = stored_.size() + 1;
  for (Outlet& outlet : outlets_) {
    while (outlet.next.size() < wanted) {
      Buffer block = outlet.pool->acquire();
      if (!block) return false;
      outlet.next.push_back(std::move(block));
    }
  }
  copying_.clear();
  for (const StoredVersion& stored : stored_) copying_.push_back(stored.step);
  copying_.push_back(version);
  return true;
}

RankJob WeightPublisher::copy(ReplicaRank& rank) const {
  const auto outlet = std::ranges::find_if(
      outlets_, [&](const Outlet& each) { return spec_->ranks[each.rank.value()].runner == rank.runner(); });
  if (outlet == outlets_.end()) {
    return [] { return WorkResult(); };
  }
  return [runner = rank.runner(), parts = outlet->block.parts, copied = outlet->copied, blocks = outlet->next,
          stored = stored_, dtype = spec_->weights.dtype] {
    for (std::size_t at = 0; at < stored.size(); ++at) {
      copy_weights(*stored[at].files, parts, copied, dtype, blocks[at].data());
    }
    copy_weights(runner->section(), parts, copied, dtype, blocks.back().data());
    return WorkResult();
  };
}

Status WeightPublisher::send() {
  stored_.clear();
  for (std::size_t version = 0; version < copying_.size(); ++version) {
    Sent sent{copying_[version], {}};
    for (const Outlet& outlet : outlets_) sent.blocks.push_back(outlet.next[version]);
    if (!connections_.empty()) {
      for (Link& link : connections_.back().links) queue(link, sent);
    }
    sent_.push_back(std::move(sent));
  }
  for (Outlet& outlet : outlets_) outlet.next.clear();
  const auto most = static_cast<std::size_t>(spec_->weights.staleness) + 1;
  while (sent_.size() > most) sent_.pop_front();
  if (connections_.empty()) return {};
  for (Link& link : connections_.back().links) {
    if (Status flushed = flush(link); !flushed) return flushed;
  }
  return {};
}

void WeightPublisher::queue(Link& link, const Sent& version) {
  const auto staleness = static_cast<std::uint64_t>(spec_->weights.staleness);
  const bool read = version.step.value() + staleness <= spec_->weights.last_step.value();
  if (version.step < link.first || !read) return;
  const std::vector<WeightPiece>& pieces = map_.pieces();
  for (std::size_t at = 0; at < outlets_.size(); ++at) {
    const Outlet& outlet = outlets_[at];
    const auto piece = std::ranges::find_if(pieces, [&](const WeightPiece& each) {
      return each.section == spec_->section && each.rank == outlet.rank && each.replica == spec_->replica;
    });
    if (piece == pieces.end()) continue;
    const std::size_t headers = aligned(static_cast<std::size_t>(outlet.copied.count) * element_bytes());
    OutgoingPiece outgoing;
    outgoing.piece.channel = link.target.ring.channel;
    outgoing.piece.receiver = link.receiver;
    outgoing.piece.sequence = version.step.value() - link.first.value();
    outgoing.piece.index = static_cast<std::uint32_t>(piece - pieces.begin());
    outgoing.piece.source_row = piece->own.first - outlet.copied.first;
    outgoing.piece.target_row = piece->target;
    outgoing.piece.rows = piece->own.count;
    outgoing.piece.source_rank = outlet.rank;
    outgoing.step = version.step;
    outgoing.buffer = version.blocks[at];
    outgoing.offset = static_cast<std::size_t>(outgoing.piece.source_row) * element_bytes();
    outgoing.header_offset = headers + link.number * PieceWriter::header_bytes;
    link.credits.queue(std::move(outgoing));
  }
}

Status WeightPublisher::flush(Link& link) {
  const Connection& connection = connections_.back();
  while (true) {
    Result<std::optional<OutgoingPiece>> next = link.credits.take();
    if (!next) return next.error();
    if (!next->has_value()) return {};
    OutgoingPiece& outgoing = **next;
    if (!link.local) {
      const auto outlet = std::ranges::find(outlets_, outgoing.piece.source_rank, &Outlet::rank);
      connection.writer->leave(link.target, {outlet->region.get(), element_bytes(), spec_->weights.dtype, true},
                               std::move(outgoing));
      continue;
    }
    hand_over(outbox_, link.actor, outgoing, {spec_->replica, connection.epoch});
  }
}

Status WeightPublisher::credit(const Credit& credit) {
  if (connections_.empty()) return {};
  for (Link& link : connections_.back().links) {
    if (link.target.ring.channel != credit.channel || link.receiver != credit.receiver) continue;
    if (Status granted = link.credits.grant(Epoch(credit.epoch), credit.released); !granted) return granted;
    return flush(link);
  }
  return {};
}

const WeightPublisher::Connection* WeightPublisher::connection_of(std::uint64_t cookie) const {
  const auto found = std::ranges::find(connections_, unpack_cookie(cookie).client, &Connection::client);
  return found == connections_.end() ? nullptr : &*found;
}

bool WeightPublisher::write_ended(std::uint64_t cookie) {
  const Connection* const connection = connection_of(cookie);
  if (connection != nullptr) connection->writer->write_finished(cookie);
  return connection != nullptr;
}

std::optional<KeptVersions> WeightPublisher::kept(StepId last) const {
  if (!sends() || !keeps_whole()) return std::nullopt;
  KeptVersions kept;
  std::vector<WeightBlock> blocks;
  for (const Outlet& outlet : outlets_) {
    blocks.push_back(outlet.block);
    blocks.back().replicas = 1;
  }
  kept.map = VersionMap(std::move(blocks));
  kept.dtype = spec_->weights.dtype;
  for (const Sent& sent : sent_) {
    const bool read = sent.step.value() + static_cast<std::uint64_t>(spec_->weights.staleness) > last.value();
    if (sent.step <= last && read) kept.versions.push_back({sent.step, sent.blocks});
  }
  return kept;
}

}  // namespace maestro
