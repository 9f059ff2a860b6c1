// SPDX-License-Identifier: Apache-2.0
// Shared by tests of input rings: a ring, its arrivals, and the peers that write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "transport/ring/chunk_plan.hpp"
#include "transport/ring/input_ring.hpp"

namespace maestro::testing {

inline InputRingSpec spec_of(std::uint32_t slots, std::size_t chunk_bytes = 0) {
  InputRingSpec spec;
  spec.channel.edge = EdgeId(4);
  spec.ring = 9;
  spec.slots = slots;
  spec.max_pieces = 3;
  spec.max_rows = 12;
  spec.columns = 2;
  spec.chunk_bytes = chunk_bytes;
  spec.epoch = Epoch(6);
  return spec;
}

inline constexpr StepId step(11);

/// Returns pieces with these numbers of rows, from senders 0, 1, 2.
inline ArrivalPlan arrival_of(std::uint64_t sequence, const std::vector<std::int64_t>& rows) {
  ArrivalPlan arrival;
  arrival.channel.edge = EdgeId(4);
  arrival.sequence = sequence;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    arrival.pieces.push_back({rows[at], ReplicaIndex(static_cast<std::uint32_t>(at))});
  }
  return arrival;
}

inline float value_at(std::uint64_t sequence, std::int64_t row, std::int64_t column) {
  return static_cast<float>(sequence * 1000 + static_cast<std::uint64_t>(row * 10 + column));
}

/// Acts for the peers: writes into the ring's memory as RMA does, and completes each write when the test decides.
class Peers {
 public:
  explicit Peers(InputRing& ring) : ring_(&ring) {}

  /// Returns the header of a piece that is at `place`.
  [[nodiscard]] PieceInfo info_of(const ArrivalPlan& arrival, std::uint32_t index, SlotMemory place) const {
    const InputRingSpec& spec = ring_->spec();
    const ArrivalPiece& piece = arrival.pieces[index];
    return {spec.epoch,
            spec.channel.edge,
            arrival.sequence,
            step,
            piece.sender,
            static_cast<std::uint64_t>(first_row(arrival, index)),
            static_cast<std::uint64_t>(piece.rows),
            static_cast<std::uint32_t>(spec.row_bytes()),
            spec.dtype,
            place};
  }
  /// Returns a piece's writes, header first; each runs when called.
  std::vector<std::function<void()>> writes(const ArrivalPlan& arrival, std::uint32_t index) const {
    const InputRingSpec& spec = ring_->spec();
    const std::int64_t first = first_row(arrival, index);
    const ArrivalPiece& piece = arrival.pieces[index];
    const std::uint32_t slot = ring_->layout().slot_of(arrival.sequence);
    const PieceInfo info = info_of(arrival, index, SlotMemory::host);
    std::vector<std::function<void()>> made;
    made.push_back([this, info, slot, index] {
      const PieceHeader header = make_header(info);
      std::memcpy(ring_->memory() + ring_->layout().header_offset(slot, index), &header, sizeof header);
    });
    for (const Chunk chunk : ChunkPlan(info.payload_bytes(), spec.chunk_bytes)) {
      made.push_back([this, chunk, slot, first, sequence = arrival.sequence, rows = piece.rows] {
        const std::vector<float> values = rows_of(sequence, first, rows);
        const std::size_t offset = static_cast<std::size_t>(first) * ring_->spec().row_bytes() + chunk.offset;
        std::memcpy(ring_->memory() + ring_->layout().payload_offset(slot, offset),
                    reinterpret_cast<const std::byte*>(values.data()) + chunk.offset, chunk.bytes);
      });
    }
    return made;
  }
  /// Runs and completes a write. Returns true if it completed its sequence.
  bool land(std::uint64_t sequence, const std::function<void()>& write) const {
    write();
    return land(sequence);
  }
  bool land(std::uint64_t sequence) const {
    const Immediate where{EdgeId(ring_->spec().ring), ring_->layout().slot_of(sequence), wrap_sequence(sequence)};
    std::uint64_t named = ~std::uint64_t{0};
    const Result<bool> complete = ring_->landed(pack(where), named);
    EXPECT_TRUE(complete) << complete.error().message;
    EXPECT_EQ(named, sequence);
    return complete && *complete;
  }
  bool land_piece(const ArrivalPlan& arrival, std::uint32_t index) const {
    bool complete = false;
    for (const auto& write : writes(arrival, index)) complete = land(arrival.sequence, write);
    return complete;
  }
  static std::int64_t first_row(const ArrivalPlan& arrival, std::uint32_t index) {
    std::int64_t first = 0;
    for (std::uint32_t before = 0; before < index; ++before) first += arrival.pieces[before].rows;
    return first;
  }
  [[nodiscard]] std::vector<float> rows_of(std::uint64_t sequence, std::int64_t first, std::int64_t count) const {
    std::vector<float> values;
    for (std::int64_t row = first; row < first + count; ++row) {
      for (std::int64_t column = 0; column < ring_->spec().columns; ++column) {
        values.push_back(value_at(sequence, row, column));
      }
    }
    return values;
  }

 private:
  InputRing* ring_;
};

/// Opens a sequence, makes its copies and compares every row. Returns the number of copies.
inline std::size_t open_and_check(InputRing& ring, std::uint64_t sequence, std::int64_t rows) {
  const Result<ArrivedTensor> arrived = ring.open(sequence);
  EXPECT_TRUE(arrived) << arrived.error().message;
  if (!arrived) return 0;
  for (const auto& copy : arrived->copies) std::memcpy(copy.to, copy.from, copy.bytes);
  const auto shape = Shape{rows, ring.spec().columns};
  EXPECT_EQ(arrived->tensor.shape(), shape);
  EXPECT_EQ(arrived->tensor.dtype(), DType::f32);
  const std::vector<float> wanted = Peers(ring).rows_of(sequence, 0, rows);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), arrived->tensor.data<float>()));
  return arrived->copies.size();
}

inline HandedRows handed(const Buffer& buffer, const ArrivalPlan& arrival, std::uint32_t index,
                         std::size_t offset = 0) {
  const std::int64_t first = Peers::first_row(arrival, index);
  const std::int64_t rows = arrival.pieces[index].rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < 2; ++column) {
      const float value = value_at(arrival.sequence, first + row, column);
      std::memcpy(buffer.data() + offset + static_cast<std::size_t>(row * 2 + column) * sizeof(float), &value,
                  sizeof value);
    }
  }
  return {buffer, offset, index, first, rows};
}

}  // namespace maestro::testing
