// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/reshard/edge_ends.hpp"

#include <algorithm>
#include <cstring>

namespace maestro::bench {

namespace {

constexpr std::size_t header_bytes = sizeof(PieceHeader);

std::uint32_t mark_of(const SampleRef& sample, std::int64_t position) {
  return static_cast<std::uint32_t>(sample.id.value()) << 16 | static_cast<std::uint32_t>(position);
}

/// Returns the markers of the rows that a rank holds.
std::vector<std::uint32_t> marks_of(const EdgeStep& step, SectionId section, Sharding sharding,
                                    const MicroBatchPlan& batch, LayoutRank rank) {
  std::vector<std::uint32_t> marks;
  for (const SampleRef& sample : batch.samples) {
    for (std::int64_t position = 0; position < sample.tokens; ++position) marks.push_back(mark_of(sample, position));
  }
  const RowRange held =
      step.graph.node(section).layout.rows(sharding, static_cast<std::int64_t>(marks.size()), rank.value());
  return {marks.begin() + held.first, marks.begin() + held.end()};
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// Returns the largest number of rows that a rank holds for a micro-batch, at least 1.
std::int64_t most_rows(const EdgeStep& step, SectionId section, Sharding sharding) {
  const Layout& layout = step.graph.node(section).layout;
  std::int64_t most = 1;
  for (const MicroBatchPlan* batch : step.micro_batches(section)) {
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      most = std::max(most, layout.rows(sharding, batch->rows(), rank).count);
    }
  }
  return most;
}

std::size_t payload_bytes(const EdgeStep& step) {
  const std::int64_t rows = most_rows(step, step.sender(), step.graph.sender_sharding(step.channel));
  return aligned(static_cast<std::size_t>(rows) * step.row_bytes());
}

std::size_t most_pieces(const EdgeStep& step) {
  std::size_t most = 1;
  for (const MicroBatchPlan* batch : step.micro_batches(step.sender())) most = std::max(most, batch->pieces.size());
  return most;
}

std::size_t blocks(const EdgeStep& step) {
  return step.micro_batches(step.sender()).size() *
         static_cast<std::size_t>(step.graph.node(step.sender()).layout.ranks());
}

}  // namespace

std::uint32_t ring_of(const EdgeStep& step, ReplicaIndex replica, LayoutRank rank) {
  return replica.value() * static_cast<std::uint32_t>(step.graph.node(step.receiver()).layout.ranks()) + rank.value();
}

SendingEnd::SendingEnd(const EdgeStep& step)
    : step_(&step), pool_(payload_bytes(step) + most_pieces(step) * header_bytes, blocks(step)) {
  const auto ranks = static_cast<std::uint32_t>(step.graph.node(step.sender()).layout.ranks());
  for (const MicroBatchPlan* batch : step.micro_batches(step.sender())) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) add(*batch, LayoutRank(rank), payload_bytes(step));
  }
}

void SendingEnd::add(const MicroBatchPlan& batch, LayoutRank rank, std::size_t payload_bytes) {
  const Buffer buffer = pool_.acquire();
  const std::size_t row_bytes = step_->row_bytes();
  auto* word = reinterpret_cast<std::uint32_t*>(buffer.data());
  for (const std::uint32_t mark :
       marks_of(*step_, step_->sender(), step_->graph.sender_sharding(step_->channel), batch, rank)) {
    word = std::fill_n(word, row_bytes / sizeof mark, mark);
  }
  std::size_t header = payload_bytes;
  for (const PieceOut& piece : batch.pieces) {
    if (piece.channel != step_->channel || piece.source_rank != rank) continue;
    pieces_.push_back({piece, batch.replica, buffer, static_cast<std::size_t>(piece.source_row) * row_bytes, header});
    header += header_bytes;
  }
}

ReceivingEnd::ReceivingEnd(const EdgeStep& step, std::size_t chunk_bytes) : step_(&step), chunk_bytes_(chunk_bytes) {
  for (const MicroBatchPlan* batch : step.micro_batches(step.receiver())) {
    for (const ArrivalPlan& arrival : batch->arrivals) {
      if (arrival.channel != step.channel) continue;
      arrivals_.push_back({batch, arrival, ring_of(step, batch->replica, arrival.rank)});
    }
  }
  const GraphNode& node = step.graph.node(step.receiver());
  std::vector<InputRingSpec> specs(static_cast<std::size_t>(node.replicas * node.layout.ranks()));
  for (const Arrival& arrival : arrivals_) {
    InputRingSpec& spec = specs[arrival.ring];
    spec.receiver = arrival.batch->replica;
    spec.slots = std::max(spec.slots, static_cast<std::uint32_t>(arrival.plan.sequence) + 1);
    spec.max_pieces = std::max(spec.max_pieces, static_cast<std::uint32_t>(arrival.plan.pieces.size()));
  }
  for (std::uint32_t ring = 0; ring < specs.size(); ++ring) {
    InputRingSpec& spec = specs[ring];
    spec.channel = step.channel;
    spec.ring = ring;
    spec.max_rows = most_rows(step, step.receiver(), step.graph.receiver_sharding(step.channel));
    spec.columns = step.edge().columns;
    spec.dtype = step.edge().dtype;
    spec.chunk_bytes = chunk_bytes;
    rings_.push_back(std::make_unique<InputRing>(spec));
  }
}

void ReceivingEnd::expect(std::uint64_t repetition) {
  missing_ = arrivals_.size();
  for (const Arrival& arrival : arrivals_) {
    ArrivalPlan plan = arrival.plan;
    plan.sequence = sequence(arrival, repetition);
    if (rings_[arrival.ring]->expect(plan, step_->plan.step).value_or_throw()) --missing_;
  }
}

void ReceivingEnd::landed(std::uint32_t immediate) {
  std::uint64_t sequence = 0;
  if (rings_[unpack_immediate(immediate).edge.value()]->landed(immediate, sequence).value_or_throw()) --missing_;
}

void ReceivingEnd::handed_over(std::uint64_t repetition, const PlacedPiece& placed) {
  const PieceOut& piece = placed.piece;
  const std::uint32_t ring = ring_of(*step_, piece.receiver, piece.target_rank);
  HandedRows rows{placed.buffer, placed.offset, piece.index, piece.target_row, piece.rows};
  const std::uint64_t sequence = piece.sequence + repetition * sequences(ring);
  if (rings_[ring]->handed_over(sequence, std::move(rows)).value_or_throw()) --missing_;
}

std::pair<ArrivedTensor, std::size_t> ReceivingEnd::open(const Arrival& arrival, std::uint64_t repetition) {
  ArrivedTensor arrived = rings_[arrival.ring]->open(sequence(arrival, repetition)).value_or_throw();
  std::size_t copied = 0;
  for (const ArrivedTensor::Copy& copy : arrived.copies) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    copied += copy.bytes;
  }
  return {std::move(arrived), copied};
}

std::size_t ReceivingEnd::finish(std::uint64_t repetition) {
  std::size_t copied = 0;
  for (const Arrival& arrival : arrivals_) {
    copied += open(arrival, repetition).second;
    (void)rings_[arrival.ring]->release(sequence(arrival, repetition)).value_or_throw();
  }
  return copied;
}

void ReceivingEnd::check(std::uint64_t repetition) {
  const std::size_t row_words = step_->row_bytes() / sizeof(std::uint32_t);
  for (const Arrival& arrival : arrivals_) {
    const Tensor tensor = open(arrival, repetition).first.tensor;
    const auto* word = reinterpret_cast<const std::uint32_t*>(tensor.raw());
    const std::vector<std::uint32_t> marks = marks_of(
        *step_, step_->receiver(), step_->graph.receiver_sharding(step_->channel), *arrival.batch, arrival.plan.rank);
    if (tensor.shape()[0] != static_cast<std::int64_t>(marks.size())) throw JobError("rows are missing at a rank");
    for (const std::uint32_t mark : marks) {
      const bool same = std::all_of(word, word + row_words, [mark](std::uint32_t value) { return value == mark; });
      if (!same) throw JobError("a row arrived that is not the one that was sent");
      word += row_words;
    }
  }
}

}  // namespace maestro::bench
