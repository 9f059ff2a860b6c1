// SPDX-License-Identifier: Apache-2.0
// Links of a rank's ports: the memory that its rings offer to senders, and the method of sending to each receiver.
#include <algorithm>
#include <utility>

#include "actors/replica/replica_ports.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

bool ReplicaPorts::offers_device_memory(Channel channel) const {
  return options_.remote && options_.device.apart() && options_.device.paths.arrives_on_device(channel, self());
}

void ReplicaPorts::offer_device_memory(Ring& ring, Channel channel) const {
  const PortDevice& device = options_.device;
  const std::set<TransferPath> paths = device.paths.arriving(channel, self());
  InputRing& slots = *ring.slots;
  if (paths.contains(TransferPath::ipc) && device.export_memory)
    ring.exported = device.export_memory(slots.device_memory());
  if (paths.contains(TransferPath::device_rma) && device.register_memory) {
    auto region = device.register_memory(slots.device_memory(), slots.device_bytes());
    if (region) ring.device_region = *std::move(region);  // else its address is empty
  }
  if (ring.exported.empty() && !ring.device_region) slots.drop_device_memory();
}

void ReplicaPorts::pin(Ring& ring, Channel channel) const {
  const PortDevice& device = options_.device;
  if (!device.apart() || !device.paths.arrives_by_rma(channel, self())) return;
  ring.pinned = PinnedBlock(*device.pins, {ring.slots->memory(), ring.slots->memory_bytes()});
}

void ReplicaPorts::register_on_device(Pool& made, Channel channel) const {
  const PortDevice& device = options_.device;
  if (!device.register_memory || !device.paths.leaving(channel, self()).contains(TransferPath::device_rma)) return;
  auto region = device.register_memory(made.buffers.memory(), made.buffers.memory_bytes());
  if (region) {
    made.region = *std::move(region);
  } else {
    made.why_not = region.error().message;
  }
}

void ReplicaPorts::add_staging() {
  constexpr std::array leaves_device = {TransferPath::ipc, TransferPath::device_rma, TransferPath::chunked_rma};
  std::size_t largest = 0;
  bool needed = false;
  for (const auto& [channel, pool] : pool_of_) {
    if (pool->buffers.space().host()) continue;
    const std::set<TransferPath> paths = options_.device.paths.leaving(channel, self());
    if (std::ranges::none_of(leaves_device, [&](TransferPath path) { return paths.contains(path); })) continue;
    largest = std::max(largest, pool->payload_bytes);
    needed = true;
  }
  if (!needed || !options_.remote) return;
  staging_ = std::make_unique<BufferPool>(writer_->staging_block_bytes(largest), PieceWriter::staging_blocks);
  staging_pinned_ = PinnedBlock(*options_.device.pins, {staging_->memory(), staging_->memory_bytes()});
  staging_region_ = network_->register_memory(staging_->memory(), staging_->memory_bytes());
  writer_->use_staging(staging_.get(), staging_region_.get());
}

std::vector<RingAddress> ReplicaPorts::rings() const {
  std::vector<RingAddress> addresses;
  for (const auto& [channel, made] : rings_) {
    const InputRing& slots = *made.slots;
    RingAddress address;
    address.channel = channel;
    address.receiver = options_.replica;
    address.layout_rank = options_.layout_rank;
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

std::vector<std::uint32_t> ReplicaPorts::ring_numbers() const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, made] : ring_index_) numbers.push_back(number);
  return numbers;
}

void ReplicaPorts::leave() {
  for (auto& [key, link] : links_) link.actor = nullptr;
  senders_.clear();
}

void ReplicaPorts::connect(const Directory& directory, Outbox outbox) {
  outbox_ = std::move(outbox);
  writer_->on_transferred(outbox_.transferred);
  for (const ReplicaAddress& peer : directory.replicas()) {
    for (const RingAddress& address : peer.rings) {
      if (options_.graph->sender(address.channel) != options_.section) continue;
      links_.insert_or_assign(LinkKey{address.channel, address.receiver, address.layout_rank}, link_to(peer, address));
    }
    for (const auto& [channel, made] : rings_) {
      if (peer.section != options_.graph->sender(channel)) continue;
      auto& senders = senders_[channel];
      senders.resize(std::max<std::size_t>(senders.size(), peer.replica.value() + 1));
      senders[peer.replica.value()] = peer.actor;
    }
  }
  for (const Credit& early : std::exchange(early_credits_, {})) credit(early).or_throw();
}

bool ReplicaPorts::renewable(Channel channel) const {
  return !channel.gradient() && options_.graph->repeatable()[options_.graph->sender(channel).value()];
}

std::vector<RingArrivals> ReplicaPorts::renew_inputs(Epoch epoch) {
  std::vector<RingArrivals> arrivals;
  for (auto& [channel, made] : rings_) {
    if (!renewable(channel)) continue;
    InputRing& slots = *made.slots;
    ring_index_.erase(slots.spec().ring);
    const std::uint32_t number = network_->next_ring();
    if (options_.remote) check_immediate_limits(std::uint64_t{number} + 1, slots.spec().slots).or_throw();
    made.former_region = std::move(made.region);  // before the memory of the one that this replaces
    made.former_pinned = std::move(made.pinned);
    made.former_memory = slots.renew(number, epoch);
    if (options_.remote) made.region = network_->register_memory(slots.memory(), slots.memory_bytes());
    pin(made, channel);
    ring_index_[number] = &slots;
    arrivals.push_back({channel, options_.replica, options_.layout_rank, slots.released(), slots.complete()});
  }
  return arrivals;
}

void ReplicaPorts::connect_renewed(const Directory& directory) {
  for (const auto& [channel, made] : rings_) {
    if (!renewable(channel)) continue;
    std::vector<caf::actor>& senders = senders_[channel];
    for (const ReplicaAddress& peer : directory.replicas()) {
      if (peer.section == options_.graph->sender(channel)) senders.at(peer.replica.value()) = peer.actor;
    }
    // The addresses have the sequences released when they were made.
    for (const caf::actor& sender : senders) outbox_.credit(sender, credit_of(*made.slots));
  }
}

ReplicaPorts::Link ReplicaPorts::link_to(const ReplicaAddress& peer, const RingAddress& address) {
  const GraphNode& sending = options_.graph->node(options_.section);
  const std::int64_t senders =
      sending.replicas * sending.layout.ranks() * options_.graph->node(peer.section).layout.ranks();
  // Sequences that a predecessor sent look like those of another sender.
  const std::int64_t counted = options_.again ? senders + 1 : senders;
  Link link{OutputLink(options_.epoch, address.slots, counted, address.released), peer.section, peer.actor};
  link.local = peer.process == options_.process && !network_->options().force_rma;
  link.target.process = peer.process;
  link.target.ring = address;
  const Pool& from = pool(address.channel);
  if (!link.local && !from.buffers.space().host()) {
    const EdgeEnd receiver{peer.section, peer.replica, address.layout_rank};
    link.target.name = options_.graph->name_of(address.channel) + ", replica " + std::to_string(peer.replica.value());
    choose_method(link, from, options_.device.paths.path(address.channel, self(), receiver));
  }
  return link;
}

void ReplicaPorts::choose_method(Link& link, const Pool& from, TransferPath planned) {
  PieceTarget& target = link.target;
  const std::string edge = options_.graph->name_of(target.ring.channel);
  const std::string chunks(text_of(TransferPath::chunked_rma));
  target.method = SendMethod::in_chunks;
  if (planned == TransferPath::ipc) {
    std::string why_not = "the receiver does not share its memory";
    const bool offered = !target.ring.device_memory.empty() && options_.device.import_memory;
    if (offered) target.shared = options_.device.import_memory(target.ring.device_memory, why_not);
    if (target.shared.expired()) return log(edge + ": not by CUDA IPC (" + why_not + "), " + chunks);
    target.method = SendMethod::shared;
    target.place = SlotMemory::device;
  }
  if (planned == TransferPath::device_rma) {
    if (from.region == nullptr) return log(edge + ": " + chunks + " (" + from.why_not + ")");
    if (target.ring.device_region.bytes == 0) {
      return log(edge + ": " + chunks + " (memory of the receiver's device does not register)");
    }
    target.method = SendMethod::from_pool;
    target.place = SlotMemory::device;
    log(edge + ": from device to device by RMA");
  }
}

void ReplicaPorts::log(const std::string& line) {
  if (logged_.insert(line).second && options_.device.log) options_.device.log(line);
}

}  // namespace maestro
