// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_outputs.hpp"

#include <algorithm>
#include <array>

#include "runtime/schedule/reshard.hpp"

namespace maestro {

ReplicaOutputs::ReplicaOutputs(const ReplicaPortsOptions& options, const PortSizes& sizes, Network& network,
                               std::uint32_t client, PortEvents events)
    : options_(&options), sizes_(&sizes), network_(&network), on_buffer_free_(std::move(events.buffer_free)) {
  PieceWriterOptions writing;
  writing.epoch = options.epoch;
  writing.replica = options.replica;
  writing.chunk_bytes = network.options().chunk_bytes;
  writing.client = client;
  writing.device = options.device.device;
  writing.write = [&network](ProcessId to, const WriteRequest& request) { network.write(to, request); };
  writing.copied = std::move(events.copied);
  writer_ = std::make_unique<PieceWriter>(std::move(writing));
  for (const Channel channel : options.graph->sent(options.section)) add_pool(channel);
  add_staging();
}

std::size_t ReplicaOutputs::most_pieces_sent() const {
  std::int64_t pieces = 0;
  const SectionGraph& graph = *options_->graph;
  for (const Channel channel : graph.sent(options_->section)) {
    pieces += max_pieces_from({graph.node(graph.receiver(channel)).layout, graph.receiver_sharding(channel)},
                              graph.node(options_->section).micro_batch);
  }
  return static_cast<std::size_t>(pieces);
}

void ReplicaOutputs::add_pool(Channel channel) {
  const EdgeId edge = channel.edge;
  const PortKey key{options_->graph->sender_port(channel), channel.direction};
  if (const auto known = pools_.find(key); known != pools_.end()) {
    pool_of_[channel] = known->second.get();
    return;
  }
  const GraphEdge& joined = options_->graph->edge(edge);
  const std::size_t pieces = most_pieces_sent();
  const std::size_t aligned = (sizes_->payload(edge, options_->layout_rank) + 63) / 64 * 64;
  const auto blocks = static_cast<std::size_t>(sizes_->blocks(channel));
  const bool by_host = !options_->device.apart() || options_->device.paths.leaves_by_host(channel, options_->self());
  MemorySpace& memory = by_host ? host_memory() : *options_->device.memory;
  const std::size_t headers = by_host ? pieces * PieceWriter::header_bytes : 0;
  auto made = std::make_unique<Pool>(Pool{BufferPool(aligned + headers, blocks, on_buffer_free_, memory),
                                          {},
                                          nullptr,
                                          {},
                                          aligned,
                                          sizes_->own_columns(edge, options_->layout_rank),
                                          joined.dtype});
  if (options_->remote && memory.host()) {
    made->region = network_->register_memory(made->buffers.memory(), made->buffers.memory_bytes());
  } else if (options_->remote) {
    register_on_device(*made, channel);
  }
  MemorySpace* const pins = options_->device.pins;
  if (pins != nullptr && memory.host() && options_->device.paths.leaves_pinned(channel, options_->self())) {
    made->pinned = PinnedBlock(*pins, {made->buffers.memory(), made->buffers.memory_bytes()});
  }
  pool_of_[channel] = made.get();
  pools_[key] = std::move(made);
}

BuffersFree ReplicaOutputs::buffers_free() const {
  BuffersFree free;
  for (const auto& [key, made] : pools_) {
    if (made->buffers.available() > 0) continue;
    (key.second == Direction::gradient ? free.gradients : free.outputs) = false;
  }
  return free;
}

void ReplicaOutputs::register_on_device(Pool& made, Channel channel) const {
  const PortDevice& device = options_->device;
  if (!device.register_memory || !device.paths.leaving(channel, options_->self()).contains(TransferPath::device_rma))
    return;
  auto region = device.register_memory(made.buffers.memory(), made.buffers.memory_bytes());
  if (region) {
    made.region = *std::move(region);
  } else {
    made.why_not = region.error().message;
  }
}

void ReplicaOutputs::add_staging() {
  constexpr std::array leaves_device = {TransferPath::ipc, TransferPath::device_rma, TransferPath::chunked_rma};
  std::size_t largest = 0;
  bool needed = false;
  for (const auto& [channel, pool] : pool_of_) {
    if (pool->buffers.space().host()) continue;
    const std::set<TransferPath> paths = options_->device.paths.leaving(channel, options_->self());
    if (std::ranges::none_of(leaves_device, [&](TransferPath path) { return paths.contains(path); })) continue;
    largest = std::max(largest, pool->payload_bytes);
    needed = true;
  }
  if (!needed || !options_->remote) return;
  staging_ = std::make_unique<BufferPool>(writer_->staging_block_bytes(largest), PieceWriter::staging_blocks);
  staging_pinned_ = PinnedBlock(*options_->device.pins, {staging_->memory(), staging_->memory_bytes()});
  staging_region_ = network_->register_memory(staging_->memory(), staging_->memory_bytes());
  writer_->use_staging(staging_.get(), staging_region_.get());
}

void ReplicaOutputs::connect(const Directory& directory, Outbox outbox) {
  outbox_ = std::move(outbox);
  writer_->on_transferred(outbox_.transferred);
  for (const ReplicaAddress& peer : directory.replicas()) {
    for (const RingAddress& address : peer.rings) {
      if (options_->graph->sender(address.channel) != options_->section) continue;
      links_.insert_or_assign(LinkKey{address.channel, address.receiver, address.layout_rank}, link_to(peer, address));
    }
  }
  for (const Credit& early : std::exchange(early_credits_, {})) credit(early).or_throw();
}

void ReplicaOutputs::leave() {
  for (auto& [key, link] : links_) link.actor = nullptr;
}

ReplicaOutputs::Link ReplicaOutputs::link_to(const ReplicaAddress& peer, const RingAddress& address) {
  const GraphNode& sending = options_->graph->node(options_->section);
  const std::int64_t senders =
      sending.replicas * sending.layout.ranks() * options_->graph->node(peer.section).layout.ranks();
  // A predecessor's sequences count like another sender's.
  const std::int64_t counted = options_->again ? senders + 1 : senders;
  Link link{OutputLink(options_->epoch, address.slots, counted, address.released), peer.section, peer.actor};
  link.local = peer.process == options_->process && !network_->options().force_rma;
  link.target.process = peer.process;
  link.target.ring = address;
  const Pool& from = pool(address.channel);
  if (!link.local && !from.buffers.space().host()) {
    const EdgeEnd receiver{peer.section, peer.replica, address.layout_rank};
    link.target.name = options_->graph->name_of(address.channel) + ", replica " + std::to_string(peer.replica.value());
    choose_method(link, from, options_->device.paths.path(address.channel, options_->self(), receiver));
  }
  return link;
}

void ReplicaOutputs::choose_method(Link& link, const Pool& from, TransferPath planned) {
  PieceTarget& target = link.target;
  const std::string edge = options_->graph->name_of(target.ring.channel);
  const std::string chunks(text_of(TransferPath::chunked_rma));
  target.method = SendMethod::in_chunks;
  if (planned == TransferPath::ipc) {
    std::string why_not = "the receiver does not share its memory";
    const bool offered = !target.ring.device_memory.empty() && options_->device.import_memory;
    if (offered) target.shared = options_->device.import_memory(target.ring.device_memory, why_not);
    if (target.shared.expired()) return log(edge + ": not by CUDA IPC (" + why_not + "), " + chunks);
    target.method = SendMethod::shared;
    target.place = SlotMemory::device;
  }
  if (planned == TransferPath::device_rma) {
    if (from.region == nullptr) return log(edge + ": " + chunks + " (" + from.why_not + ")");
    if (target.ring.device_region.bytes == 0) {
      return log(edge + ": " + chunks + " (the receiver's device memory cannot be registered)");
    }
    target.method = SendMethod::from_pool;
    target.place = SlotMemory::device;
    log(edge + ": from device to device by RMA");
  }
}

void ReplicaOutputs::log(const std::string& line) {
  if (logged_.insert(line).second && options_->device.log) options_->device.log(line);
}

std::vector<SendBuffer> ReplicaOutputs::acquire(const MicroBatchPlan& plan, Direction direction) {
  std::vector<SendBuffer> buffers;
  std::vector<const Pool*> taken;
  for (const PieceOut& piece : plan.pieces) {
    if (piece.channel.direction != direction || piece.source_rank != options_->layout_rank) continue;
    Pool& from = pool(piece.channel);
    if (std::ranges::find(taken, &from) != taken.end()) continue;
    taken.push_back(&from);
    SendBuffer send;
    send.channel = piece.channel;
    send.buffer = from.buffers.acquire();
    const EdgeId edge = piece.channel.edge;
    const GraphEdge& of_graph = options_->graph->edge(edge);
    const std::int64_t all = plan.rows(of_graph.axis, of_graph.sources);
    const std::int64_t rows = sizes_->own_rows(edge, all, options_->layout_rank);
    send.tensor = Tensor(send.buffer.data(), from.dtype, Shape{rows, from.columns});
    buffers.push_back(std::move(send));
  }
  return buffers;
}

Status ReplicaOutputs::send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers) {
  std::vector<Link*> used;  // pieces of other links are sent when their credits arrive
  for (const SendBuffer& ready : buffers) {
    Pool& from = pool(ready.channel);
    std::size_t header = from.payload_bytes;
    for (const PieceOut& piece : plan.pieces) {
      if (piece.source_rank != options_->layout_rank || &pool(piece.channel) != &from) continue;
      OutgoingPiece outgoing;
      outgoing.piece = piece;
      outgoing.step = plan.step;
      outgoing.buffer = ready.buffer;
      outgoing.offset = static_cast<std::size_t>(piece.source_row * from.columns) * size_of(from.dtype);
      outgoing.header_offset = header;
      header += PieceWriter::header_bytes;
      used.push_back(&links_.at({piece.channel, piece.receiver, piece.target_rank}));
      used.back()->credits.queue(std::move(outgoing));
    }
  }
  for (Link* link : used) {
    if (Status flushed = flush(*link); !flushed) return flushed;
  }
  return {};
}

Status ReplicaOutputs::flush(Link& link) {
  while (true) {
    Result<std::optional<OutgoingPiece>> next = link.credits.take();
    if (!next) return next.error();
    if (!next->has_value()) return {};
    OutgoingPiece& outgoing = **next;
    const Pool& from = pool(outgoing.piece.channel);
    const std::size_t row_bytes = static_cast<std::size_t>(from.columns) * size_of(from.dtype);
    sent_[outgoing.piece.channel] += static_cast<std::uint64_t>(outgoing.piece.rows) * row_bytes;
    if (!link.local) {
      writer_->leave(link.target, {from.region.get(), row_bytes, from.dtype, from.buffers.space().host()},
                     std::move(outgoing));
      continue;
    }
    handed_over_[outgoing.piece.channel] += {0, 1};
    hand_over(outbox_, link.actor, outgoing, {options_->replica, options_->epoch});
  }
}

void ReplicaOutputs::take_sent(SentBytes& sum) {
  for (const auto& [channel, bytes] : std::exchange(sent_, {})) sum[channel] += bytes;
}

void ReplicaOutputs::take_transfers(ChannelTimes& sum) {
  for (const auto& [channel, times] : std::exchange(handed_over_, {})) sum[channel] += times;
  writer_->take_times(sum);
}

Status ReplicaOutputs::credit(const Credit& credit) {
  if (links_.empty()) early_credits_.push_back(credit);
  const auto found = links_.find({credit.channel, credit.receiver, credit.layout_rank});
  if (found == links_.end()) return {};
  if (Status granted = found->second.credits.grant(Epoch(credit.epoch), credit.released); !granted) return granted;
  return flush(found->second);
}

std::optional<ReplicaOutputs::WaitingSend> ReplicaOutputs::waiting_send() const {
  for (const auto& [key, link] : links_) {
    const OutgoingPiece* next = link.credits.next();
    if (next == nullptr) continue;
    return WaitingSend{link.section, link.target.ring.receiver, next->step};
  }
  return std::nullopt;
}

}  // namespace maestro
