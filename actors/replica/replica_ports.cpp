// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_ports.hpp"

#include <algorithm>

#include "runtime/job/config.hpp"
#include "runtime/schedule/reshard.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

static_assert(most_slots == max_immediate_slots);

ReplicaPorts::ReplicaPorts(const ReplicaPortsOptions& options, Network& network, PortEvents events)
    : options_(options),
      sizes_(*options.graph, options.section, options.largest, options.limits),
      network_(&network),
      on_buffer_free_(std::move(events.buffer_free)),
      client_(network.next_client()) {
  PieceWriterOptions writing;
  writing.epoch = options.epoch;
  writing.replica = options.replica;
  writing.chunk_bytes = network.options().chunk_bytes;
  writing.client = client_;
  writing.device = options.device.device;
  writing.write = [&network](ProcessId to, const WriteRequest& request) { network.write(to, request); };
  writing.copied = std::move(events.copied);
  writer_ = std::make_unique<PieceWriter>(std::move(writing));
  for (const Channel channel : options_.graph->received(options_.section)) add_ring(channel);
  for (const Channel channel : options_.graph->sent(options_.section)) add_pool(channel);
  add_staging();
}

void ReplicaPorts::add_ring(Channel channel) {
  const SectionGraph& graph = *options_.graph;
  const GraphNode& node = graph.node(options_.section);
  const GraphEdge& joined = graph.edge(channel.edge);
  InputRingSpec spec;
  spec.channel = channel;
  spec.receiver = options_.replica;
  spec.ring = network_->next_ring();
  spec.slots = static_cast<std::uint32_t>(sizes_.slots(channel));
  const ReshardEnd sender{graph.node(graph.sender(channel)).layout, graph.sender_sharding(channel)};
  spec.max_pieces =
      static_cast<std::uint32_t>(max_pieces_of(sender, node.micro_batch, options_.largest.rows(joined.axis)));
  spec.max_rows = sizes_.most_own_rows(channel.edge);
  spec.columns = sizes_.own_columns(channel.edge, options_.layout_rank);
  spec.dtype = joined.dtype;
  spec.chunk_bytes = network_->options().chunk_bytes;
  spec.epoch = options_.epoch;
  if (options_.device.apart()) spec.reader = options_.device.memory;
  if (offers_device_memory(channel) && spec.max_pieces <= max_immediate_pieces) {
    spec.device = options_.device.memory;
    spec.device_ring = network_->next_ring();
  }
  const std::uint32_t last = std::max(spec.ring, spec.device_ring);
  if (options_.remote) check_immediate_limits(std::uint64_t{last} + 1, spec.slots).or_throw();
  Ring& made = rings_[channel];
  made.slots = std::make_unique<InputRing>(spec);
  if (options_.remote) made.region = network_->register_memory(made.slots->memory(), made.slots->memory_bytes());
  pin(made, channel);
  ring_index_[spec.ring] = made.slots.get();
  if (spec.device == nullptr) return;
  ring_index_[spec.device_ring] = made.slots.get();
  offer_device_memory(made, channel);
}

std::size_t ReplicaPorts::most_pieces_sent() const {
  std::int64_t pieces = 0;
  const SectionGraph& graph = *options_.graph;
  for (const Channel channel : graph.sent(options_.section)) {
    pieces += max_pieces_from({graph.node(graph.receiver(channel)).layout, graph.receiver_sharding(channel)},
                              graph.node(options_.section).micro_batch);
  }
  return static_cast<std::size_t>(pieces);
}

void ReplicaPorts::add_pool(Channel channel) {
  const EdgeId edge = channel.edge;
  const PortKey key{options_.graph->sender_port(channel), channel.direction};
  if (const auto known = pools_.find(key); known != pools_.end()) {
    pool_of_[channel] = known->second.get();
    return;
  }
  const GraphEdge& joined = options_.graph->edge(edge);
  const std::size_t pieces = most_pieces_sent();
  const std::size_t aligned = (sizes_.payload(edge, options_.layout_rank) + 63) / 64 * 64;
  const auto blocks = static_cast<std::size_t>(sizes_.blocks(channel));
  const bool by_host = !options_.device.apart() || options_.device.paths.leaves_by_host(channel, self());
  MemorySpace& memory = by_host ? host_memory() : *options_.device.memory;
  const std::size_t headers = by_host ? pieces * PieceWriter::header_bytes : 0;
  auto made = std::make_unique<Pool>(Pool{BufferPool(aligned + headers, blocks, on_buffer_free_, memory),
                                          {},
                                          nullptr,
                                          {},
                                          aligned,
                                          sizes_.own_columns(edge, options_.layout_rank),
                                          joined.dtype});
  if (options_.remote && memory.host()) {
    made->region = network_->register_memory(made->buffers.memory(), made->buffers.memory_bytes());
  } else if (options_.remote) {
    register_on_device(*made, channel);
  }
  MemorySpace* const pins = options_.device.pins;
  if (pins != nullptr && memory.host() && options_.device.paths.leaves_pinned(channel, self())) {
    made->pinned = PinnedBlock(*pins, {made->buffers.memory(), made->buffers.memory_bytes()});
  }
  pool_of_[channel] = made.get();
  pools_[key] = std::move(made);
}

BuffersFree ReplicaPorts::buffers_free() const {
  BuffersFree free;
  for (const auto& [key, made] : pools_) {
    if (made->buffers.available() > 0) continue;
    (key.second == Direction::gradient ? free.gradients : free.outputs) = false;
  }
  return free;
}

Result<std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>>> ReplicaPorts::open(
    const MicroBatchPlan& plan, Direction direction) {
  std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>> tensors;
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.channel.direction != direction || arrival.rank != options_.layout_rank) continue;
    Result<ArrivedTensor> arrived = ring(arrival.channel).open(arrival.sequence);
    if (!arrived) return arrived.error();
    const GraphEdge& edge = options_.graph->edge(arrival.channel.edge);
    PortTensor tensor{options_.graph->receiver_port(arrival.channel), arrived->tensor, edge.gradient};
    tensor.sources = edge.sources;
    if (!arrived->space->host()) {
      const bool here = options_.device.memory->reaches(*arrived->space);
      tensor.memory = here ? MemoryKind::device : MemoryKind::peer_device;
    }
    tensors.emplace_back(std::move(tensor), std::move(arrived->copies));
  }
  return tensors;
}

Status ReplicaPorts::release(const MicroBatchPlan& plan) {
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.rank != options_.layout_rank) continue;
    InputRing& from = ring(arrival.channel);
    const std::uint64_t window_end = from.window_end();
    const Result<bool> grew = from.release(arrival.sequence);
    if (!grew) return grew.error();
    if (*grew) grant(from, window_end, from.window_end());
  }
  return {};
}

Credit ReplicaPorts::credit_of(const InputRing& ring) const {
  const InputRingSpec& spec = ring.spec();
  return {spec.channel, options_.replica, options_.layout_rank, spec.epoch.value(), ring.released()};
}

void ReplicaPorts::grant(const InputRing& ring, std::uint64_t first, std::uint64_t end) {
  const InputRingSpec& spec = ring.spec();
  const std::vector<caf::actor>& all = senders_[spec.channel];
  std::vector<ReplicaIndex> granted;
  if (all.size() == 1) granted.emplace_back(0);  // the only sender, without a work item
  for (std::uint64_t sequence = first; all.size() > 1 && sequence < end; ++sequence) {
    const ArrivalPlan* entered = ring.expected(sequence);
    if (entered == nullptr) continue;  // expect() grants it
    for (const ArrivalPiece& piece : entered->pieces) {
      if (std::ranges::find(granted, piece.sender) == granted.end()) granted.push_back(piece.sender);
    }
  }
  for (const ReplicaIndex sender : granted) outbox_.credit(all.at(sender.value()), credit_of(ring));
}

Status ReplicaPorts::expect(const MicroBatchPlan& plan, const Arrived& arrived) {
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.rank != options_.layout_rank) continue;
    InputRing& into = ring(arrival.channel);
    const Result<bool> complete = into.expect(arrival, plan.step);
    if (!complete) return complete.error();
    const bool let_in = arrival.sequence >= into.spec().slots && arrival.sequence < into.window_end();
    if (let_in && senders_[arrival.channel].size() > 1) {
      grant(into, arrival.sequence, arrival.sequence + 1);
    }
    if (*complete) arrived(arrival.channel, arrival.sequence);
  }
  return {};
}

Status ReplicaPorts::landed(std::uint32_t immediate, const Arrived& arrived) {
  InputRing& into = *ring_index_.at(unpack_immediate(immediate).edge.value());
  std::uint64_t sequence = 0;
  const Result<bool> complete = into.landed(immediate, sequence);
  if (!complete) return complete.error();
  if (*complete) arrived(into.spec().channel, sequence);
  return {};
}

Status ReplicaPorts::handed_over(const PieceHandOver& piece, const Arrived& arrived) {
  if (piece.epoch != ring(piece.channel).spec().epoch) return {};  // RB-5
  HandedRows rows{piece.buffer, piece.offset, piece.index, piece.target_row, piece.rows};
  const Result<bool> complete = ring(piece.channel).handed_over(piece.sequence, std::move(rows));
  if (!complete) return complete.error();
  if (*complete) arrived(piece.channel, piece.sequence);
  return {};
}

}  // namespace maestro
