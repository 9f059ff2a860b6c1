// SPDX-License-Identifier: Apache-2.0
// Sending: buffers for a pass, and pieces as credits allow.
#include <algorithm>
#include <utility>

#include "actors/replica/replica_ports.hpp"

namespace maestro {

std::vector<SendBuffer> ReplicaPorts::acquire(const MicroBatchPlan& plan, Direction direction) {
  std::vector<SendBuffer> buffers;
  std::vector<const Pool*> taken;
  for (const PieceOut& piece : plan.pieces) {
    if (piece.channel.direction != direction || piece.source_rank != options_.layout_rank) continue;
    Pool& from = pool(piece.channel);
    if (std::ranges::find(taken, &from) != taken.end()) continue;
    taken.push_back(&from);
    SendBuffer send;
    send.channel = piece.channel;
    send.buffer = from.buffers.acquire();
    const EdgeId edge = piece.channel.edge;
    const GraphEdge& of_graph = options_.graph->edge(edge);
    const std::int64_t all = plan.rows(of_graph.axis, of_graph.sources);
    const std::int64_t rows = sizes_.own_rows(edge, all, options_.layout_rank);
    send.tensor = Tensor(send.buffer.data(), from.dtype, Shape{rows, from.columns});
    buffers.push_back(std::move(send));
  }
  return buffers;
}

Status ReplicaPorts::send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers) {
  std::vector<Link*> used;  // pieces of other links wait for credits, and leave with those
  for (const SendBuffer& ready : buffers) {
    Pool& from = pool(ready.channel);
    std::size_t header = from.payload_bytes;
    for (const PieceOut& piece : plan.pieces) {
      if (piece.source_rank != options_.layout_rank || &pool(piece.channel) != &from) continue;
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

Status ReplicaPorts::flush(Link& link) {
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
    PieceHandOver hand;
    hand.channel = outgoing.piece.channel;
    hand.sequence = outgoing.piece.sequence;
    hand.index = outgoing.piece.index;
    hand.target_row = outgoing.piece.target_row;
    hand.rows = outgoing.piece.rows;
    hand.sender = options_.replica;
    hand.layout_rank = outgoing.piece.target_rank;
    hand.epoch = options_.epoch;
    hand.buffer = outgoing.buffer;
    hand.offset = outgoing.offset;
    handed_over_[hand.channel] += {0, 1};
    const Transfer transfer{outgoing.piece, outgoing.step, false, std::chrono::steady_clock::now()};
    outbox_.hand_over(link.actor, std::move(hand));
    if (outbox_.transferred) outbox_.transferred(transfer);
  }
}

void ReplicaPorts::take_sent(SentBytes& sum) {
  for (const auto& [channel, bytes] : std::exchange(sent_, {})) sum[channel] += bytes;
}

void ReplicaPorts::take_transfers(ChannelTimes& sum) {
  for (const auto& [channel, times] : std::exchange(handed_over_, {})) sum[channel] += times;
  writer_->take_times(sum);
}

Status ReplicaPorts::credit(const Credit& credit) {
  if (links_.empty()) early_credits_.push_back(credit);
  const auto found = links_.find({credit.channel, credit.receiver, credit.layout_rank});
  if (found == links_.end()) return {};
  if (Status granted = found->second.credits.grant(Epoch(credit.epoch), credit.released); !granted) return granted;
  return flush(found->second);
}

std::optional<ReplicaPorts::WaitingSend> ReplicaPorts::waiting_send() const {
  for (const auto& [key, link] : links_) {
    const OutgoingPiece* next = link.credits.next();
    if (next == nullptr) continue;
    return WaitingSend{link.section, link.target.ring.receiver, next->step};
  }
  return std::nullopt;
}

}  // namespace maestro
