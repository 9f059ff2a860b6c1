// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_inputs.hpp"

#include <algorithm>
#include <set>

#include "runtime/job/config.hpp"
#include "runtime/schedule/reshard.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

static_assert(most_slots == max_immediate_slots);

ReplicaInputs::ReplicaInputs(const ReplicaPortsOptions& options, const PortSizes& sizes, Network& network)
    : options_(&options), sizes_(&sizes), network_(&network) {
  for (const Channel channel : options.graph->received(options.section)) add_ring(channel);
}

void ReplicaInputs::add_ring(Channel channel) {
  const SectionGraph& graph = *options_->graph;
  const GraphNode& node = graph.node(options_->section);
  const GraphEdge& joined = graph.edge(channel.edge);
  InputRingSpec spec;
  spec.channel = channel;
  spec.receiver = options_->replica;
  spec.ring = network_->next_ring();
  spec.slots = static_cast<std::uint32_t>(sizes_->slots(channel));
  const ReshardEnd sender{graph.node(graph.sender(channel)).layout, graph.sender_sharding(channel)};
  spec.max_pieces =
      static_cast<std::uint32_t>(max_pieces_of(sender, node.micro_batch, options_->largest.rows(joined.axis)));
  spec.max_rows = sizes_->most_own_rows(channel.edge);
  spec.columns = sizes_->own_columns(channel.edge, options_->layout_rank);
  spec.dtype = joined.dtype;
  spec.chunk_bytes = network_->options().chunk_bytes;
  spec.epoch = options_->epoch;
  if (options_->device.apart()) spec.reader = options_->device.memory;
  if (offers_device_memory(channel) && spec.max_pieces <= max_immediate_pieces) {
    spec.device = options_->device.memory;
    spec.device_ring = network_->next_ring();
  }
  const std::uint32_t last = std::max(spec.ring, spec.device_ring);
  if (options_->remote) check_immediate_limits(std::uint64_t{last} + 1, spec.slots).or_throw();
  Ring& made = rings_[channel];
  made.slots = std::make_unique<InputRing>(spec);
  if (options_->remote) made.region = network_->register_memory(made.slots->memory(), made.slots->memory_bytes());
  pin(made, channel);
  ring_index_[spec.ring] = made.slots.get();
  if (spec.device == nullptr) return;
  ring_index_[spec.device_ring] = made.slots.get();
  offer_device_memory(made, channel);
}

bool ReplicaInputs::offers_device_memory(Channel channel) const {
  return options_->remote && options_->device.apart() &&
         options_->device.paths.arrives_on_device(channel, options_->self());
}

void ReplicaInputs::offer_device_memory(Ring& ring, Channel channel) const {
  const PortDevice& device = options_->device;
  const std::set<TransferPath> paths = device.paths.arriving(channel, options_->self());
  InputRing& slots = *ring.slots;
  if (paths.contains(TransferPath::ipc) && device.export_memory)
    ring.exported = device.export_memory(slots.device_memory());
  if (paths.contains(TransferPath::device_rma) && device.register_memory) {
    auto region = device.register_memory(slots.device_memory(), slots.device_bytes());
    if (region) ring.device_region = *std::move(region);  // without a region its address is empty
  }
  if (ring.exported.empty() && !ring.device_region) slots.drop_device_memory();
}

void ReplicaInputs::pin(Ring& ring, Channel channel) const {
  const PortDevice& device = options_->device;
  if (!device.apart() || !device.paths.arrives_by_rma(channel, options_->self())) return;
  ring.pinned = PinnedBlock(*device.pins, {ring.slots->memory(), ring.slots->memory_bytes()});
}

std::vector<RingAddress> ReplicaInputs::rings() const {
  std::vector<RingAddress> addresses;
  for (const auto& [channel, made] : rings_) {
    const InputRing& slots = *made.slots;
    RingAddress address;
    address.channel = channel;
    address.receiver = options_->replica;
    address.layout_rank = options_->layout_rank;
    address.ring = slots.spec().ring;
    address.slots = slots.spec().slots;
    address.max_pieces = slots.spec().max_pieces;
    address.payload_bytes = slots.layout().payload_bytes();
    address.released = slots.released();
    if (made.region) address.region = made.region->remote();
    address.device_ring = slots.spec().device_ring;
    address.device_memory = made.exported;
    if (made.device_region) address.device_region = made.device_region->remote();
    addresses.push_back(std::move(address));
  }
  return addresses;
}

std::vector<std::uint32_t> ReplicaInputs::ring_numbers() const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, made] : ring_index_) numbers.push_back(number);
  return numbers;
}

void ReplicaInputs::connect(const Directory& directory, SendCredit send_credit) {
  send_credit_ = std::move(send_credit);
  for (const ReplicaAddress& peer : directory.replicas()) {
    for (const auto& [channel, made] : rings_) {
      if (peer.section != options_->graph->sender(channel)) continue;
      auto& senders = senders_[channel];
      senders.resize(std::max<std::size_t>(senders.size(), peer.replica.value() + 1));
      senders[peer.replica.value()] = peer.actor;
    }
  }
}

bool ReplicaInputs::renewable(Channel channel) const {
  return !channel.gradient() && options_->graph->repeatable()[options_->graph->sender(channel).value()];
}

std::vector<RingArrivals> ReplicaInputs::renew(Epoch epoch) {
  std::vector<RingArrivals> arrivals;
  for (auto& [channel, made] : rings_) {
    if (!renewable(channel)) continue;
    InputRing& slots = *made.slots;
    ring_index_.erase(slots.spec().ring);
    const std::uint32_t number = network_->next_ring();
    if (options_->remote) check_immediate_limits(std::uint64_t{number} + 1, slots.spec().slots).or_throw();
    made.former_region = std::move(made.region);  // destroys the old region before its memory
    made.former_pinned = std::move(made.pinned);
    made.former_memory = slots.renew(number, epoch);
    if (options_->remote) made.region = network_->register_memory(slots.memory(), slots.memory_bytes());
    pin(made, channel);
    ring_index_[number] = &slots;
    arrivals.push_back({channel, options_->replica, options_->layout_rank, slots.released(), slots.complete()});
  }
  return arrivals;
}

void ReplicaInputs::connect_renewed(const Directory& directory) {
  for (const auto& [channel, made] : rings_) {
    if (!renewable(channel)) continue;
    std::vector<caf::actor>& senders = senders_[channel];
    for (const ReplicaAddress& peer : directory.replicas()) {
      if (peer.section == options_->graph->sender(channel)) senders.at(peer.replica.value()) = peer.actor;
    }
    // The addresses hold the released sequences of the time when they were made.
    for (const caf::actor& sender : senders) send_credit_(sender, credit_of(*made.slots));
  }
}

Result<std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>>> ReplicaInputs::open(
    const MicroBatchPlan& plan, Direction direction) {
  std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>> tensors;
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.channel.direction != direction || arrival.rank != options_->layout_rank) continue;
    Result<ArrivedTensor> arrived = ring(arrival.channel).open(arrival.sequence);
    if (!arrived) return arrived.error();
    const GraphEdge& edge = options_->graph->edge(arrival.channel.edge);
    PortTensor tensor{options_->graph->receiver_port(arrival.channel), arrived->tensor, edge.gradient};
    tensor.sources = edge.sources;
    if (!arrived->space->host()) {
      const bool here = options_->device.memory->reaches(*arrived->space);
      tensor.memory = here ? MemoryKind::device : MemoryKind::peer_device;
    }
    tensors.emplace_back(std::move(tensor), std::move(arrived->copies));
  }
  return tensors;
}

Status ReplicaInputs::release(const MicroBatchPlan& plan) {
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.rank != options_->layout_rank) continue;
    InputRing& from = ring(arrival.channel);
    const std::uint64_t window_end = from.window_end();
    const Result<bool> grew = from.release(arrival.sequence);
    if (!grew) return grew.error();
    if (*grew) grant(from, window_end, from.window_end());
  }
  return {};
}

Credit ReplicaInputs::credit_of(const InputRing& ring) const {
  const InputRingSpec& spec = ring.spec();
  return {spec.channel, options_->replica, options_->layout_rank, spec.epoch.value(), ring.released()};
}

void ReplicaInputs::grant(const InputRing& ring, std::uint64_t first, std::uint64_t end) {
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
  for (const ReplicaIndex sender : granted) send_credit_(all.at(sender.value()), credit_of(ring));
}

Status ReplicaInputs::expect(const MicroBatchPlan& plan, const Arrived& arrived) {
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.rank != options_->layout_rank) continue;
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

Status ReplicaInputs::landed(std::uint32_t immediate, const Arrived& arrived) {
  InputRing& into = *ring_index_.at(unpack_immediate(immediate).edge.value());
  std::uint64_t sequence = 0;
  const Result<bool> complete = into.landed(immediate, sequence);
  if (!complete) return complete.error();
  if (*complete) arrived(into.spec().channel, sequence);
  return {};
}

Status ReplicaInputs::handed_over(const PieceHandOver& piece, const Arrived& arrived) {
  if (piece.epoch != ring(piece.channel).spec().epoch) return {};  // RB-5
  HandedRows rows{piece.buffer, piece.offset, piece.index, piece.target_row, piece.rows};
  const Result<bool> complete = ring(piece.channel).handed_over(piece.sequence, std::move(rows));
  if (!complete) return complete.error();
  if (*complete) arrived(piece.channel, piece.sequence);
  return {};
}

}  // namespace maestro
