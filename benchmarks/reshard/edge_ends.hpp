// SPDX-License-Identifier: Apache-2.0
// The ends of an edge in a step, without a network: tensors of the sending ranks, rings of the receiving ranks. Rows
// contain their sample and position, so that received rows can be checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "benchmarks/reshard/edge_step.hpp"
#include "runtime/core/buffer.hpp"
#include "transport/ring/input_ring.hpp"

namespace maestro::bench {

/// Returns the number of a receiving rank over all replicas.
[[nodiscard]] std::uint32_t ring_of(const EdgeStep& step, ReplicaIndex replica, LayoutRank rank);

/// A piece and its position in the senders' memory.
struct PlacedPiece {
  PieceOut piece;
  ReplicaIndex sender;
  Buffer buffer;
  std::size_t offset = 0;         ///< first row, bytes into the buffer
  std::size_t header_offset = 0;  ///< bytes into the buffer
};

/// The tensors of all sending ranks. `step` must outlive it.
class SendingEnd {
 public:
  explicit SendingEnd(const EdgeStep& step);
  [[nodiscard]] const std::vector<PlacedPiece>& pieces() const { return pieces_; }  ///< in the order of the plan
  [[nodiscard]] std::byte* memory() const { return pool_.memory(); }
  [[nodiscard]] std::size_t memory_bytes() const { return pool_.memory_bytes(); }

 private:
  void add(const MicroBatchPlan& batch, LayoutRank rank, std::size_t payload_bytes);

  const EdgeStep* step_;
  BufferPool pool_;
  std::vector<PlacedPiece> pieces_;
};

/// The rings of all receiving ranks: the step's sequences fill a ring exactly, and the sequences of repetition r follow
/// the sequences of r - 1. Errors are thrown as JobError. `step` must outlive it.
class ReceivingEnd {
 public:
  ReceivingEnd(const EdgeStep& step, std::size_t chunk_bytes);
  /// Returns the rings, indexed by ring_of().
  [[nodiscard]] const std::vector<std::unique_ptr<InputRing>>& rings() const { return rings_; }
  /// Returns how many sequences of the ring a repetition uses.
  [[nodiscard]] std::uint64_t sequences(std::uint32_t ring) const { return rings_[ring]->spec().slots; }

  void expect(std::uint64_t repetition);
  void landed(std::uint32_t immediate);
  void handed_over(std::uint64_t repetition, const PlacedPiece& piece);
  [[nodiscard]] bool complete() const { return missing_ == 0; }
  /// Opens every tensor, gathers its rows if needed, and releases the slots. Returns the number of copied bytes.
  std::size_t finish(std::uint64_t repetition);
  /// Opens every tensor of a complete repetition. Throws JobError if a row differs from the sent row.
  void check(std::uint64_t repetition);

 private:
  struct Arrival {
    const MicroBatchPlan* batch = nullptr;
    ArrivalPlan plan;
    std::uint32_t ring = 0;
  };
  [[nodiscard]] InputRingSpec spec_of(const MicroBatchPlan& batch, const ArrivalPlan& arrival) const;
  [[nodiscard]] std::uint64_t sequence(const Arrival& arrival, std::uint64_t repetition) const {
    return arrival.plan.sequence + repetition * sequences(arrival.ring);
  }
  std::pair<ArrivedTensor, std::size_t> open(const Arrival& arrival, std::uint64_t repetition);

  const EdgeStep* step_;
  std::size_t chunk_bytes_;
  std::vector<Arrival> arrivals_;
  std::vector<std::unique_ptr<InputRing>> rings_;
  std::size_t missing_ = 0;  // tensors of the expected repetition
};

}  // namespace maestro::bench
