// What leaves a rank: buffers for a pass, pieces as credits allow, writes until they have ended.
#include <algorithm>
#include <cstring>

#include "actors/replica_ports.hpp"
#include "transport/chunk_plan.hpp"
#include "transport/immediate.hpp"

namespace maestro {

std::vector<SendBuffer> ReplicaPorts::acquire(const MicroBatchPlan& plan, bool gradients) {
  std::vector<SendBuffer> buffers;
  std::vector<const Pool*> taken;
  for (const PieceOut& piece : plan.pieces) {
    if (piece.gradient != gradients || piece.source_rank != options_.layout_rank) continue;
    Pool& from = pool(piece.edge, gradients);
    if (std::ranges::find(taken, &from) != taken.end()) continue;
    taken.push_back(&from);
    SendBuffer send;
    send.edge = piece.edge;
    send.gradient = gradients;
    send.buffer = from.buffers.acquire();
    const std::int64_t rows = own_rows(piece.edge, plan.rows(options_.graph->edge(piece.edge).axis));
    send.tensor = Tensor(send.buffer.data(), from.dtype, Shape{rows, from.columns});
    buffers.push_back(std::move(send));
  }
  return buffers;
}

Status ReplicaPorts::send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers) {
  std::vector<Link*> used;  // what others hold back waits for credits, and leaves with those
  for (const SendBuffer& ready : buffers) {
    Pool& from = pool(ready.edge, ready.gradient);
    std::size_t header = from.payload_bytes;
    for (const PieceOut& piece : plan.pieces) {
      if (piece.source_rank != options_.layout_rank || piece.gradient != ready.gradient) continue;
      if (&pool(piece.edge, piece.gradient) != &from) continue;
      OutgoingPiece outgoing;
      outgoing.piece = piece;
      outgoing.step = plan.step;
      outgoing.buffer = ready.buffer;
      outgoing.offset = static_cast<std::size_t>(piece.source_row * from.columns) * size_of(from.dtype);
      outgoing.header_offset = header;
      header += header_bytes;
      used.push_back(&links_.at({piece.edge, piece.gradient, piece.receiver, piece.target_rank}));
      used.back()->credits.queue(std::move(outgoing));
    }
  }
  for (Link* link : used) {
    if (Status flushed = flush(*link); !flushed) return flushed;
  }
  return {};
}

Status ReplicaPorts::flush(Link& link) {
  while (true) {
    Result<std::optional<OutgoingPiece>> next = link.credits.take();
    if (!next) return next.error();
    if (!next->has_value()) return {};
    const OutgoingPiece& outgoing = **next;
    if (!link.local) {
      write(link, pool(outgoing.piece.edge, outgoing.piece.gradient), outgoing);
      continue;
    }
    PieceHandOver hand;
    hand.edge = outgoing.piece.edge;
    hand.gradient = outgoing.piece.gradient;
    hand.sequence = outgoing.piece.sequence;
    hand.index = outgoing.piece.index;
    hand.target_row = outgoing.piece.target_row;
    hand.rows = outgoing.piece.rows;
    hand.sender = options_.replica;
    hand.layout_rank = outgoing.piece.target_rank;
    hand.buffer = outgoing.buffer;
    hand.offset = outgoing.offset;
    const Transfer transfer{outgoing.piece, outgoing.step, false, std::chrono::steady_clock::now()};
    outbox_.hand_over(link.actor, std::move(hand));
    note_transfer(transfer);
  }
}

void ReplicaPorts::write(const Link& link, const Pool& from, const OutgoingPiece& outgoing) {
  const PieceOut& piece = outgoing.piece;
  const SlotLayout layout =
      SlotLayout::make(link.ring.slots, link.ring.max_pieces, link.ring.payload_bytes).value_or_throw();
  const std::uint32_t slot = layout.slot_of(piece.sequence);
  const std::size_t row_bytes = static_cast<std::size_t>(from.columns) * size_of(from.dtype);
  PieceInfo info{options_.epoch,
                 piece.edge,
                 piece.sequence,
                 outgoing.step,
                 options_.replica,
                 static_cast<std::uint64_t>(piece.target_row),
                 static_cast<std::uint64_t>(piece.rows),
                 static_cast<std::uint32_t>(row_bytes),
                 from.dtype};
  const PieceHeader header = make_header(info);
  std::memcpy(outgoing.buffer.data() + outgoing.header_offset, &header, sizeof header);
  const auto transfer =
      std::make_shared<const Transfer>(Transfer{piece, outgoing.step, true, std::chrono::steady_clock::now()});
  const auto post = [&](std::size_t local_offset, std::size_t remote_offset, std::size_t bytes) {
    WriteRequest request;
    request.local = from.region.get();
    request.local_offset = outgoing.buffer.pool_offset() + local_offset;
    request.bytes = bytes;
    request.remote = link.ring.region;
    request.remote_offset = remote_offset;
    request.immediate = pack({EdgeId(link.ring.ring), slot, wrap_sequence(piece.sequence)});
    request.cookie = std::uint64_t{client_} << Network::client_shift | next_cookie_++;
    writes_[request.cookie] = {outgoing.buffer, transfer};
    network_->write(link.rank, request);
  };
  post(outgoing.header_offset, layout.header_offset(slot, piece.index), sizeof header);
  const std::size_t target = static_cast<std::size_t>(piece.target_row) * row_bytes;
  for (const Chunk chunk : ChunkPlan(info.payload_bytes(), network_->options().chunk_bytes)) {
    post(outgoing.offset + chunk.offset, layout.payload_offset(slot, target + chunk.offset), chunk.bytes);
  }
}

void ReplicaPorts::write_finished(std::uint64_t cookie) {
  const auto found = writes_.find(cookie);
  if (found == writes_.end()) return;
  const Write finished = std::move(found->second);
  writes_.erase(found);
  if (finished.transfer.use_count() == 1) note_transfer(*finished.transfer);
}

Status ReplicaPorts::credit(const Credit& credit) {
  const auto found = links_.find({credit.edge, credit.gradient, credit.receiver, credit.layout_rank});
  if (found == links_.end()) return {};
  if (Status granted = found->second.credits.grant(Epoch(credit.epoch), credit.released); !granted) return granted;
  return flush(found->second);
}

std::optional<ReplicaPorts::WaitingSend> ReplicaPorts::waiting_send() const {
  for (const auto& [key, link] : links_) {
    const OutgoingPiece* next = link.credits.next();
    if (next == nullptr) continue;
    return WaitingSend{link.section, link.ring.receiver, next->step};
  }
  return std::nullopt;
}

}  // namespace maestro
