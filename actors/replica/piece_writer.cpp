// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/piece_writer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace maestro {

std::size_t PieceWriter::staging_block_bytes(std::size_t largest_piece) const {
  const std::size_t chunk = options_.chunk_bytes == 0 ? largest_piece : std::min(options_.chunk_bytes, largest_piece);
  return header_bytes + chunk;
}

void PieceWriter::use_staging(BufferPool* blocks, const Region* region) {
  blocks_ = blocks;
  block_region_ = region;
}

PieceWriter::SharedPiece PieceWriter::make(const PieceTarget& target, const PieceSource& source,
                                           OutgoingPiece outgoing) const {
  const RingAddress& ring = target.ring;
  const PieceOut& out = outgoing.piece;
  const SlotLayout layout = SlotLayout::make(ring.slots, ring.max_pieces, ring.payload_bytes).value_or_throw();
  const Transfer transfer{out, outgoing.step, true, std::chrono::steady_clock::now()};
  const std::uint32_t slot = layout.slot_of(out.sequence);
  const bool whole = target.method == SendMethod::shared;
  const Immediate immediate = whole ? Immediate{EdgeId(ring.device_ring), slot, static_cast<std::uint16_t>(out.index)}
                                    : Immediate{EdgeId(ring.ring), slot, wrap_sequence(out.sequence)};
  const std::size_t bytes = static_cast<std::size_t>(out.rows) * source.row_bytes;
  const ChunkPlan chunks(bytes, whole ? 0 : options_.chunk_bytes);
  Piece piece{&target, source, std::move(outgoing), layout, immediate, chunks, transfer};
  if (!whole) piece.writes_left += chunks.size();
  if (target.method != SendMethod::from_pool) piece.copies_left = chunks.size();
  return std::make_shared<Piece>(std::move(piece));
}

PieceHeader PieceWriter::header_of(const Piece& piece) const {
  const PieceOut& out = piece.outgoing.piece;
  PieceInfo info{options_.epoch,
                 out.channel.edge,
                 out.sequence,
                 piece.outgoing.step,
                 options_.replica,
                 static_cast<std::uint64_t>(out.target_row),
                 static_cast<std::uint64_t>(out.rows),
                 static_cast<std::uint32_t>(piece.source.row_bytes),
                 piece.source.dtype,
                 piece.target->place};
  return make_header(info);
}

void PieceWriter::leave(const PieceTarget& target, const PieceSource& source, OutgoingPiece outgoing) {
  const SharedPiece piece = make(target, source, std::move(outgoing));
  if (target.method == SendMethod::from_pool) return write_from_pool(piece);
  if (piece->copies_left == 0) {
    piece->outgoing.buffer.reset();
    headers_.push_back(piece);
  } else if (target.method == SendMethod::shared) {
    return copy_to_shared(piece);
  } else {
    chunked_.push_back(piece);
  }
  advance();
}

void PieceWriter::write_from_pool(const SharedPiece& piece) {
  const PieceTarget& target = *piece->target;
  const Buffer& buffer = piece->outgoing.buffer;
  const bool to_host = target.place == SlotMemory::host;
  if (piece->source.host) {
    const PieceHeader header = header_of(*piece);
    const std::size_t offset = piece->outgoing.header_offset;
    std::memcpy(buffer.data() + offset, &header, sizeof header);
    write(piece, buffer, {piece->source.region, buffer.pool_offset() + offset, sizeof header}, target.ring.region,
          piece->layout.header_offset(piece->slot(), piece->outgoing.piece.index));
  } else {
    headers_.push_back(piece);
  }
  for (const Chunk chunk : piece->chunks) {
    const std::size_t byte = piece->target_byte() + chunk.offset;
    write(
        piece, buffer,
        {piece->source.region, buffer.pool_offset() + piece->outgoing.offset + chunk.offset, chunk.bytes},
        to_host ? target.ring.region : target.ring.device_region,
        to_host ? piece->layout.payload_offset(piece->slot(), byte) : piece->layout.device_offset(piece->slot(), byte));
  }
  advance();
}

void PieceWriter::copy_to_shared(const SharedPiece& piece) {
  std::shared_ptr<ImportedMemory> shared = piece->target->shared.lock();
  std::byte* to = nullptr;
  if (shared) to = shared->data() + piece->layout.device_offset(piece->slot(), piece->target_byte());
  copy(piece, piece->chunks[0], {to, {}, std::move(shared)});
}

void PieceWriter::advance() {
  while (!headers_.empty() || !chunked_.empty()) {
    Buffer block = blocks_->acquire();
    if (!block) return;  // WP-2: write_finished() continues
    if (!headers_.empty()) {
      const SharedPiece piece = std::move(headers_.front());
      headers_.pop_front();
      write_header(piece, block);
      continue;
    }
    const SharedPiece piece = chunked_.front();
    if (piece->next_chunk + 1 == piece->chunks.size()) chunked_.pop_front();
    copy_chunk(piece, std::move(block));
  }
}

void PieceWriter::copy_chunk(const SharedPiece& piece, Buffer block) {
  const Chunk chunk = piece->chunks[piece->next_chunk++];
  std::byte* to = block.data() + header_bytes;
  copy(piece, chunk, {to, std::move(block), nullptr});
}

void PieceWriter::copy(const SharedPiece& piece, Chunk chunk, CopyTarget target) {
  const std::uint64_t cookie = next_cookie();
  copies_[cookie] = {piece, target.block, chunk};
  if (target.to == nullptr) return options_.copied(cookie, "the receiver's memory has been closed");
  const Buffer& from = piece->outgoing.buffer;
  // The copy holds references to both buffers, since it outlives the actor if the run ends early.
  options_.device->move(
      from.data() + piece->outgoing.offset + chunk.offset, target.to, chunk.bytes,
      [copied = options_.copied, cookie, from, held = target](const std::string& failure) { copied(cookie, failure); });
}

Status PieceWriter::copied(std::uint64_t cookie, const std::string& failure) {
  const auto found = copies_.find(cookie);
  if (found == copies_.end()) return {};
  const Copy ended = std::move(found->second);
  copies_.erase(found);
  Piece& piece = *ended.piece;
  if (!failure.empty()) {
    return Error{ErrorCode::unavailable, "copying a piece from " + piece.target->name + ", step " +
                                             std::to_string(piece.outgoing.step.value()) + ": " + failure};
  }
  if (--piece.copies_left == 0) piece.outgoing.buffer.reset();
  if (piece.target->method == SendMethod::in_chunks) {
    write_chunk(ended);
    return {};
  }
  headers_.push_back(ended.piece);  // WP-3
  advance();
  return {};
}

void PieceWriter::write_chunk(const Copy& copied) {
  const Piece& piece = *copied.piece;
  if (copied.chunk.offset == 0) write_header(copied.piece, copied.block);
  write(copied.piece, copied.block, {block_region_, copied.block.pool_offset() + header_bytes, copied.chunk.bytes},
        piece.target->ring.region,
        piece.layout.payload_offset(piece.slot(), piece.target_byte() + copied.chunk.offset));
}

void PieceWriter::write_header(const SharedPiece& piece, const Buffer& block) {
  const PieceHeader header = header_of(*piece);
  std::memcpy(block.data(), &header, sizeof header);
  write(piece, block, {block_region_, block.pool_offset(), sizeof header}, piece->target->ring.region,
        piece->layout.header_offset(piece->slot(), piece->outgoing.piece.index));
}

void PieceWriter::write(const SharedPiece& piece, const Buffer& source, const LocalBytes& from, const RemoteRegion& to,
                        std::size_t to_offset) {
  WriteRequest request;
  request.local = from.region;
  request.local_offset = from.offset;
  request.bytes = from.bytes;
  request.remote = to;
  request.remote_offset = to_offset;
  request.immediate = pack(piece->immediate);
  request.cookie = next_cookie();
  writes_[request.cookie] = {piece, source};
  options_.write(piece->target->process, request);
}

void PieceWriter::write_finished(std::uint64_t cookie) {
  const auto found = writes_.find(cookie);
  if (found == writes_.end()) return;
  const SharedPiece piece = found->second.piece;
  writes_.erase(found);
  if (--piece->writes_left == 0) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - piece->transfer.begin;
    times_[piece->transfer.piece.channel] += {took.count(), 1};
    if (options_.transferred) options_.transferred(piece->transfer);
  }
  advance();
}

void PieceWriter::take_times(ChannelTimes& sum) {
  for (const auto& [channel, times] : std::exchange(times_, {})) sum[channel] += times;
}

}  // namespace maestro
