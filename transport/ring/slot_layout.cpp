// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/slot_layout.hpp"

#include <cassert>
#include <cstring>
#include <limits>
#include <string>

namespace maestro {
namespace {

std::uint64_t checksum_of(const PieceHeader& header) {
  unsigned char bytes[offsetof(PieceHeader, checksum)];
  std::memcpy(bytes, &header, sizeof bytes);
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (auto byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

std::string place_of(const PieceInfo& piece) {
  return "edge " + std::to_string(piece.edge.value()) + ", sequence " + std::to_string(piece.seq) + ", step " +
         std::to_string(piece.step.value()) + ", source replica " + std::to_string(piece.source_replica.value());
}

struct Field {
  const char* name;
  std::uint64_t found;
  std::uint64_t expected;
};

}  // namespace

PieceHeader make_header(const PieceInfo& piece) {
  PieceHeader header;
  header.magic = piece_magic;
  header.epoch = piece.epoch.value();
  header.edge = piece.edge.value();
  header.source_replica = piece.source_replica.value();
  header.seq = piece.seq;
  header.step = piece.step.value();
  header.row_offset = piece.row_offset;
  header.rows = piece.rows;
  header.row_bytes = piece.row_bytes;
  header.dtype = static_cast<std::uint8_t>(piece.dtype);
  header.place = static_cast<std::uint8_t>(piece.place);
  header.checksum = checksum_of(header);
  return header;
}

Status validate(const PieceHeader& header, const PieceInfo& expected) {
  const PieceHeader wanted = make_header(expected);
  if (header.magic != piece_magic) {
    return Error{ErrorCode::corrupt, "no piece header at " + place_of(expected) + ": magic is " +
                                         std::to_string(header.magic) + ", not " + std::to_string(piece_magic)};
  }
  if (header.checksum != checksum_of(header)) {
    return Error{ErrorCode::corrupt, "piece header at " + place_of(expected) + " fails its checksum"};
  }
  const Field fields[] = {
      {"epoch", header.epoch, wanted.epoch},
      {"edge", header.edge, wanted.edge},
      {"sequence", header.seq, wanted.seq},
      {"step", header.step, wanted.step},
      {"source replica", header.source_replica, wanted.source_replica},
      {"row offset", header.row_offset, wanted.row_offset},
      {"rows", header.rows, wanted.rows},
      {"row bytes", header.row_bytes, wanted.row_bytes},
      {"dtype", header.dtype, wanted.dtype},
      {"place", header.place, wanted.place},
  };
  for (const auto& field : fields) {
    if (field.found == field.expected) continue;
    return Error{ErrorCode::corrupt, "piece header at " + place_of(expected) + ": " + field.name + " is " +
                                         std::to_string(field.found) + ", expected " + std::to_string(field.expected)};
  }
  return {};
}

Result<SlotLayout> SlotLayout::make(std::uint32_t slots, std::uint32_t max_pieces, std::size_t payload_bytes) {
  if (slots == 0) return Error{ErrorCode::invalid_argument, "a ring needs at least 1 slot (transport.slots)"};
  if (max_pieces == 0) return Error{ErrorCode::invalid_argument, "a slot needs room for at least 1 piece"};
  const std::size_t table_bytes = std::size_t{max_pieces} * sizeof(PieceHeader);
  const std::size_t limit = std::numeric_limits<std::size_t>::max() / slots;
  if (payload_bytes > limit - table_bytes || limit - table_bytes - payload_bytes < alignment) {
    return Error{ErrorCode::invalid_argument, "a ring of " + std::to_string(slots) + " slots of " +
                                                  std::to_string(payload_bytes) +
                                                  " bytes cannot be addressed; lower transport.slots or micro_batch"};
  }
  const std::size_t payload_end = table_bytes + payload_bytes;
  return SlotLayout(slots, max_pieces, payload_bytes, (payload_end + alignment - 1) / alignment * alignment);
}

std::size_t SlotLayout::header_offset(std::uint32_t slot, std::uint32_t piece) const {
  assert(slot < slots_ && piece < max_pieces_);
  return slot * slot_bytes_ + piece * sizeof(PieceHeader);
}

std::size_t SlotLayout::payload_offset(std::uint32_t slot, std::size_t byte) const {
  assert(slot < slots_ && byte <= payload_bytes_);
  return slot * slot_bytes_ + max_pieces_ * sizeof(PieceHeader) + byte;
}

std::size_t SlotLayout::device_offset(std::uint32_t slot, std::size_t byte) const {
  assert(slot < slots_ && byte <= payload_bytes_);
  return slot * (device_bytes() / slots_) + byte;
}

std::size_t SlotLayout::device_bytes() const {
  return slots_ * ((payload_bytes_ + device_alignment - 1) / device_alignment * device_alignment);
}

}  // namespace maestro
