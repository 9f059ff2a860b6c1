#include "transport/input_ring.hpp"

#include <algorithm>
#include <cstring>

#include "transport/chunk_plan.hpp"

namespace maestro {

InputRing::InputRing(const InputRingSpec& spec)
    : spec_(spec),
      layout_(SlotLayout::make(spec.slots, spec.max_pieces, static_cast<std::size_t>(spec.max_rows) * spec.row_bytes())
                  .value_or_throw()),
      counter_(spec.slots),
      memory_(layout_.total_bytes()) {}

Immediate InputRing::immediate_of(std::uint64_t sequence) const {
  return {EdgeId(spec_.ring), layout_.slot_of(sequence), wrap_sequence(sequence)};
}

std::size_t InputRing::writes_of(std::int64_t rows) const {
  return writes_per_piece(static_cast<std::size_t>(rows) * spec_.row_bytes(), spec_.chunk_bytes);
}

Result<bool> InputRing::count(const Expected& expected) {
  std::size_t writes = 0;
  for (const ArrivalPiece& piece : expected.arrival.pieces) writes += writes_of(piece.rows);
  return counter_.expect(expected.arrival.sequence, writes);
}

Result<bool> InputRing::expect(const ArrivalPlan& arrival, StepId step) {
  const Expected& expected = expected_[arrival.sequence] = {arrival, step};
  if (!in_window(arrival.sequence)) return arrival.pieces.empty();  // then nothing can tell later that it is complete
  return count(expected);
}

Result<bool> InputRing::landed(std::uint32_t immediate, std::uint64_t& sequence) {
  const Immediate where = unpack_immediate(immediate);
  sequence = counter_.sequence_of(where);
  switch (counter_.arrived(where)) {
    case Arrival::complete:
      return true;
    case Arrival::excess:
      return Error{ErrorCode::corrupt, "more writes than expected arrived for sequence " + std::to_string(sequence)};
    case Arrival::pending:
    case Arrival::stale:
      return false;  // a write of an earlier epoch is nobody's business now
  }
  return false;
}

Result<bool> InputRing::handed_over(std::uint64_t sequence, HandedRows rows) {
  const std::size_t writes = writes_of(rows.rows);
  handed_[sequence].push_back(std::move(rows));
  switch (counter_.arrived(immediate_of(sequence), writes)) {
    case Arrival::complete:
      return true;
    case Arrival::pending:
      return false;
    case Arrival::excess:
    case Arrival::stale:
      break;
  }
  return Error{ErrorCode::internal, "rows were handed over for sequence " + std::to_string(sequence) +
                                        ", which is outside the window or full"};
}

Status InputRing::check_header(const Expected& expected, std::uint32_t piece, std::int64_t target_row) const {
  PieceHeader header;
  std::memcpy(&header, memory_.data() + layout_.header_offset(layout_.slot_of(expected.arrival.sequence), piece),
              sizeof header);
  PieceInfo info;
  info.epoch = spec_.epoch;
  info.edge = spec_.edge;
  info.seq = expected.arrival.sequence;
  info.step = expected.step;
  info.source_replica = expected.arrival.pieces[piece].sender;
  info.row_offset = static_cast<std::uint64_t>(target_row);
  info.rows = static_cast<std::uint64_t>(expected.arrival.pieces[piece].rows);
  info.row_bytes = static_cast<std::uint32_t>(spec_.row_bytes());
  info.dtype = spec_.dtype;
  return validate(header, info);
}

Result<ArrivedTensor> InputRing::open(std::uint64_t sequence) {
  const Expected& expected = expected_.at(sequence);
  auto& handed = handed_[sequence];
  std::sort(handed.begin(), handed.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  std::byte* payload = memory_.data() + layout_.payload_offset(layout_.slot_of(sequence));
  std::int64_t rows = 0;
  auto next_handed = handed.begin();
  for (std::uint32_t piece = 0; piece < expected.arrival.pieces.size(); ++piece) {
    if (next_handed != handed.end() && next_handed->index == piece) {
      ++next_handed;
    } else if (Status checked = check_header(expected, piece, rows); !checked) {
      return checked.error();
    }
    rows += expected.arrival.pieces[piece].rows;
  }
  ArrivedTensor arrived;
  const Shape shape{rows, spec_.columns};
  const bool all_handed = handed.size() == expected.arrival.pieces.size();
  const auto start = [](const HandedRows& part) { return part.buffer.data() + part.offset; };
  bool contiguous = all_handed;
  for (std::size_t at = 1; contiguous && at < handed.size(); ++at) {  // IR-2
    const std::size_t bytes = static_cast<std::size_t>(handed[at - 1].rows) * spec_.row_bytes();
    contiguous = start(handed[at]) == start(handed[at - 1]) + bytes &&
                 &handed[at].buffer.space() == &handed[at - 1].buffer.space();
  }
  if (contiguous && !handed.empty()) {
    arrived.tensor = Tensor(start(handed.front()), spec_.dtype, shape);
    arrived.space = &handed.front().buffer.space();
    return arrived;
  }
  for (const HandedRows& part : handed) {
    arrived.copies.push_back({start(part), payload + static_cast<std::size_t>(part.target_row) * spec_.row_bytes(),
                              static_cast<std::size_t>(part.rows) * spec_.row_bytes(), part.buffer.space().host()});
  }
  arrived.tensor = Tensor(payload, spec_.dtype, shape);
  return arrived;
}

Result<bool> InputRing::release(std::uint64_t sequence) {
  const std::uint64_t before = window_end();
  if (Status freed = counter_.release(sequence); !freed) return freed.error();
  expected_.erase(sequence);
  handed_.erase(sequence);
  // Nothing can have arrived for the sequences that enter the window now: their credit is yet to be sent.
  for (std::uint64_t entered = before; entered < window_end(); ++entered) {
    const auto found = expected_.find(entered);
    if (found == expected_.end()) continue;
    if (const Result<bool> counted = count(found->second); !counted) return counted.error();
  }
  return window_end() > before;
}

}  // namespace maestro
