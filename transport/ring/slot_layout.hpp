// SPDX-License-Identifier: Apache-2.0
// The layout of an edge's ring of slots, and the header that describes each piece of a micro-batch.
//
// One slot: | header 0 | header 1 | ... | header max_pieces-1 | payload ............ |, every part on a 64-byte border.
//
// LY-1 (disjoint): no two headers, payloads or slots overlap, and all lie inside [0, total_bytes).
// LY-2 (alignment): every header, payload and slot starts at a multiple of 64 bytes.
// LY-3 (true headers): a header whose checksum holds and that agrees with its expectation in every field describes
//       exactly that piece.
// LY-4 (device payloads): a ring may have a second payload for every slot in device memory; these payloads are
//       consecutive, each on a 256-byte border. A piece's header names the payload that holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/core/dtype.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// The payload of a slot that holds a piece.
enum class SlotMemory : std::uint8_t { host, device };

/// The identity of a piece: rows [row_offset, row_offset + rows) of a consumer replica's micro-batch.
struct PieceInfo {
  Epoch epoch;
  EdgeId edge;
  std::uint64_t seq = 0;
  StepId step;
  ReplicaIndex source_replica;
  std::uint64_t row_offset = 0;  ///< number of the consumer's rows before this piece
  std::uint64_t rows = 0;
  std::uint32_t row_bytes = 0;
  DType dtype = DType::f32;
  SlotMemory place = SlotMemory::host;
  [[nodiscard]] std::uint64_t payload_bytes() const { return rows * row_bytes; }
};

/// The 64 bytes written ahead of a piece's payload. Both ends are little-endian machines.
struct PieceHeader {
  std::uint32_t magic = 0;
  std::uint32_t epoch = 0;
  std::uint32_t edge = 0;
  std::uint32_t source_replica = 0;
  std::uint64_t seq = 0;
  std::uint64_t step = 0;
  std::uint64_t row_offset = 0;
  std::uint64_t rows = 0;
  std::uint32_t row_bytes = 0;
  std::uint8_t dtype = 0;
  std::uint8_t place = 0;  ///< SlotMemory
  std::uint8_t reserved[2] = {0, 0};
  std::uint64_t checksum = 0;  ///< FNV-1a (64 bits) of the 56 bytes before it
};
static_assert(sizeof(PieceHeader) == 64 && std::is_trivially_copyable_v<PieceHeader>);

inline constexpr std::uint32_t piece_magic = 0x4d504331;  // "MPC1"

[[nodiscard]] PieceHeader make_header(const PieceInfo& piece);
/// Returns OK if `header` is intact and describes `expected`; otherwise `corrupt`, naming the first field that differs
/// with both values and the piece's place (edge, sequence, step, source replica).
Status validate(const PieceHeader& header, const PieceInfo& expected);

/// A value; immutable after make().
class SlotLayout {
 public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t device_alignment = 256;

  /// Errors, `invalid_argument`: no slots, no pieces, or a ring too large to address.
  static Result<SlotLayout> make(std::uint32_t slots, std::uint32_t max_pieces, std::size_t payload_bytes);

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::uint32_t max_pieces() const { return max_pieces_; }
  /// Returns the payload capacity of a slot, as requested.
  [[nodiscard]] std::size_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::size_t total_bytes() const { return slot_bytes_ * slots_; }
  [[nodiscard]] std::uint32_t slot_of(std::uint64_t seq) const { return static_cast<std::uint32_t>(seq % slots_); }

  /// Returns an offset in bytes from the start of the ring. The arguments must be inside the layout.
  [[nodiscard]] std::size_t header_offset(std::uint32_t slot, std::uint32_t piece) const;
  [[nodiscard]] std::size_t payload_offset(std::uint32_t slot, std::size_t byte = 0) const;
  /// Returns the offset from the start of the payloads in device memory (LY-4).
  [[nodiscard]] std::size_t device_offset(std::uint32_t slot, std::size_t byte = 0) const;
  [[nodiscard]] std::size_t device_bytes() const;

 private:
  SlotLayout(std::uint32_t slots, std::uint32_t max_pieces, std::size_t payload_bytes, std::size_t slot_bytes)
      : slots_(slots), max_pieces_(max_pieces), payload_bytes_(payload_bytes), slot_bytes_(slot_bytes) {}

  std::uint32_t slots_;
  std::uint32_t max_pieces_;
  std::size_t payload_bytes_;
  std::size_t slot_bytes_;
};

}  // namespace maestro
