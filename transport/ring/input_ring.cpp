// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/input_ring.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/ring/chunk_plan.hpp"

namespace maestro {

InputRing::InputRing(const InputRingSpec& spec)
    : spec_(spec),
      layout_(SlotLayout::make(spec.slots, spec.max_pieces, static_cast<std::size_t>(spec.max_rows) * spec.row_bytes())
                  .value_or_throw()),
      counter_(spec.slots),
      memory_(std::make_shared<AlignedMemory>(layout_.total_bytes())) {
  if (spec.device != nullptr) device_memory_ = SpaceMemory(*spec.device, layout_.device_bytes());
}

Immediate InputRing::immediate_of(std::uint64_t sequence) const {
  return {EdgeId(spec_.ring), layout_.slot_of(sequence), wrap_sequence(sequence)};
}

std::size_t InputRing::writes_of(std::int64_t rows) const {
  return writes_per_piece(static_cast<std::size_t>(rows) * spec_.row_bytes(), spec_.chunk_bytes);
}

Result<bool> InputRing::count(const Incoming& incoming) {
  std::size_t writes = 0;
  for (const ArrivalPiece& piece : incoming.arrival.pieces) writes += writes_of(piece.rows);
  return counter_.expect(incoming.arrival.sequence, writes);
}

Result<bool> InputRing::expect(const ArrivalPlan& arrival, StepId step) {
  Incoming& incoming = incoming_[arrival.sequence];
  incoming.is_expected = true;
  incoming.arrival = arrival;
  incoming.step = step;
  if (!in_window(arrival.sequence)) return arrival.pieces.empty();  // no arrival would report it complete later
  Result<bool> complete = count(incoming);
  for (std::size_t at = 0; complete && at < incoming.whole.size(); ++at) {
    complete = count_whole(incoming, incoming.whole[at]);
  }
  return complete;
}

std::uint64_t InputRing::sequence_in(std::uint32_t slot) const {
  const std::uint64_t first = released();
  return first + (slot + spec_.slots - first % spec_.slots) % spec_.slots;
}

Result<bool> InputRing::landed(std::uint32_t immediate, std::uint64_t& sequence) {
  const Immediate where = unpack_immediate(immediate);
  if (device_memory() != nullptr && where.edge.value() == spec_.device_ring) {
    sequence = sequence_in(where.slot);
    return device_landed(where, sequence);
  }
  sequence = counter_.sequence_of(where);
  switch (counter_.arrived(where)) {
    case Arrival::complete:
      return true;
    case Arrival::excess:
      return Error{ErrorCode::corrupt, "more writes than expected arrived for sequence " + std::to_string(sequence)};
    case Arrival::pending:
    case Arrival::stale:
      return false;  // a write of an earlier epoch belongs to no sequence
  }
  return false;
}

Result<bool> InputRing::device_landed(const Immediate& where, std::uint64_t sequence) {
  if (where.slot >= spec_.slots) {
    return Error{ErrorCode::corrupt,
                 "a piece arrived for slot " + std::to_string(where.slot) + " of " + std::to_string(spec_.slots)};
  }
  Incoming& incoming = incoming_[sequence];
  incoming.whole.push_back(where.sequence);
  return incoming.is_expected ? count_whole(incoming, where.sequence) : Result<bool>(false);
}

Result<bool> InputRing::count_whole(const Incoming& incoming, std::uint32_t piece) {
  const ArrivalPlan& arrival = incoming.arrival;
  if (piece < arrival.pieces.size() && std::ranges::count(incoming.whole, piece) == 1) {
    switch (counter_.arrived(immediate_of(arrival.sequence), writes_of(arrival.pieces[piece].rows))) {
      case Arrival::complete:
        return true;
      case Arrival::pending:
        return false;
      case Arrival::excess:
      case Arrival::stale:
        break;
    }
  }
  return Error{ErrorCode::corrupt, "piece " + std::to_string(piece) + " of sequence " +
                                       std::to_string(arrival.sequence) + " arrived twice or is none of its " +
                                       std::to_string(arrival.pieces.size()) + " pieces"};
}

Result<bool> InputRing::handed_over(std::uint64_t sequence, HandedRows rows) {
  const std::size_t writes = writes_of(rows.rows);
  incoming_[sequence].handed.push_back(std::move(rows));
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

Result<SlotMemory> InputRing::check_header(const Incoming& incoming, std::uint32_t piece,
                                           std::int64_t target_row) const {
  PieceHeader header;
  const std::uint64_t sequence = incoming.arrival.sequence;
  const std::size_t place = layout_.header_offset(layout_.slot_of(sequence), piece);
  std::memcpy(&header, memory_of(incoming).data() + place, sizeof header);
  const bool whole = std::ranges::find(incoming.whole, piece) != incoming.whole.end();
  const bool may_be_there = device_memory() != nullptr && header.place == static_cast<std::uint8_t>(SlotMemory::device);
  PieceInfo info;
  info.epoch = incoming.kept ? incoming.kept_epoch : spec_.epoch;
  info.edge = spec_.channel.edge;
  info.seq = sequence;
  info.step = incoming.step;
  info.source_replica = incoming.arrival.pieces[piece].sender;
  info.row_offset = static_cast<std::uint64_t>(target_row);
  info.rows = static_cast<std::uint64_t>(incoming.arrival.pieces[piece].rows);
  info.row_bytes = static_cast<std::uint32_t>(spec_.row_bytes());
  info.dtype = spec_.dtype;
  info.place = whole || may_be_there ? SlotMemory::device : SlotMemory::host;
  if (Status checked = validate(header, info); !checked) return checked.error();
  return info.place;
}

Result<std::vector<InputRing::Written>> InputRing::written(const Incoming& incoming) const {
  const std::vector<HandedRows>& handed = incoming.handed;
  std::vector<Written> pieces;
  std::int64_t rows = 0;
  auto next_handed = handed.begin();
  for (std::uint32_t piece = 0; piece < incoming.arrival.pieces.size(); ++piece) {
    if (next_handed != handed.end() && next_handed->index == piece) {
      ++next_handed;
    } else {
      const Result<SlotMemory> place = check_header(incoming, piece, rows);
      if (!place) return place.error();
      pieces.push_back({piece, *place, rows});
    }
    rows += incoming.arrival.pieces[piece].rows;
  }
  return pieces;
}

std::byte* InputRing::payload(SlotMemory place, const Incoming& incoming, std::int64_t row) const {
  const std::uint32_t slot = layout_.slot_of(incoming.arrival.sequence);
  const std::size_t byte = static_cast<std::size_t>(row) * spec_.row_bytes();
  return place == SlotMemory::host ? memory_of(incoming).data() + layout_.payload_offset(slot, byte)
                                   : device_memory() + layout_.device_offset(slot, byte);
}

bool InputRing::in_one_row(const std::vector<HandedRows>& handed) const {
  const auto start = [](const HandedRows& part) { return part.buffer.data() + part.offset; };
  for (std::size_t at = 1; at < handed.size(); ++at) {
    const std::size_t bytes = static_cast<std::size_t>(handed[at - 1].rows) * spec_.row_bytes();
    if (start(handed[at]) != start(handed[at - 1]) + bytes) return false;
    if (&handed[at].buffer.space() != &handed[at - 1].buffer.space()) return false;
  }
  return !handed.empty();
}

Result<ArrivedTensor> InputRing::open(std::uint64_t sequence) {
  Incoming& incoming = incoming_.at(sequence);
  auto& handed = incoming.handed;
  std::sort(handed.begin(), handed.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  const Result<std::vector<Written>> pieces = written(incoming);
  if (!pieces) return pieces.error();
  std::int64_t rows = 0;
  for (const ArrivalPiece& piece : incoming.arrival.pieces) rows += piece.rows;
  const Shape shape{rows, spec_.columns};
  ArrivedTensor arrived;
  if (pieces->empty() && in_one_row(handed)) {  // IR-2
    arrived.tensor = Tensor(handed.front().buffer.data() + handed.front().offset, spec_.dtype, shape);
    arrived.space = &handed.front().buffer.space();
    return arrived;
  }
  const bool all_in_slot =
      handed.empty() && std::ranges::all_of(*pieces, [](const Written& it) { return it.place == SlotMemory::host; });
  const Target into = target_of(incoming, all_in_slot);
  const auto add = [&](const std::byte* from, bool from_host, std::int64_t row, std::int64_t of_piece) {
    std::byte* const to = into.begin + static_cast<std::size_t>(row) * spec_.row_bytes();
    const std::size_t bytes = static_cast<std::size_t>(of_piece) * spec_.row_bytes();
    if (from != to) arrived.copies.push_back({from, to, bytes, from_host, into.space->host()});
  };
  for (const Written& piece : *pieces) {
    add(payload(piece.place, incoming, piece.target_row), piece.place == SlotMemory::host, piece.target_row,
        incoming.arrival.pieces[piece.piece].rows);
  }
  for (const HandedRows& part : handed) {
    add(part.buffer.data() + part.offset, part.buffer.space().host(), part.target_row, part.rows);
  }
  arrived.tensor = Tensor(into.begin, spec_.dtype, shape);
  arrived.space = into.space;
  return arrived;
}

InputRing::Target InputRing::target_of(Incoming& incoming, bool all_in_slot) {
  if (device_memory() != nullptr && !all_in_slot) return {payload(SlotMemory::device, incoming), spec_.device};
  const bool from_device =
      std::ranges::any_of(incoming.handed, [](const auto& it) { return !it.buffer.space().host(); });
  if (spec_.reader == nullptr || !from_device) return {payload(SlotMemory::host, incoming)};
  if (incoming.gathered.data() == nullptr) {
    if (spare_.empty()) spare_.emplace_back(*spec_.reader, layout_.payload_bytes());
    incoming.gathered = std::move(spare_.back());
    spare_.pop_back();
  }
  return {incoming.gathered.data(), spec_.reader};
}

std::shared_ptr<AlignedMemory> InputRing::renew(std::uint32_t ring, Epoch epoch) {
  for (auto& [sequence, incoming] : incoming_) {
    if (!counter_.complete(sequence)) {
      incoming.handed.clear();
      incoming.whole.clear();
    } else if (!incoming.kept) {
      incoming.kept = memory_;
      incoming.kept_epoch = spec_.epoch;
    }
  }
  counter_.forget_incomplete();
  spec_.ring = ring;
  spec_.epoch = epoch;
  return std::exchange(memory_, std::make_shared<AlignedMemory>(layout_.total_bytes()));
}

std::vector<std::uint64_t> InputRing::complete() const {
  std::vector<std::uint64_t> sequences;
  for (std::uint64_t sequence = released(); sequence < window_end(); ++sequence) {
    if (counter_.complete(sequence)) sequences.push_back(sequence);
  }
  return sequences;
}

Result<bool> InputRing::release(std::uint64_t sequence) {
  const std::uint64_t before = window_end();
  if (Status freed = counter_.release(sequence); !freed) return freed.error();
  if (const auto found = incoming_.find(sequence); found != incoming_.end()) {
    if (found->second.gathered.data() != nullptr) spare_.push_back(std::move(found->second.gathered));
    incoming_.erase(found);
  }
  // Nothing can have arrived for the sequences that enter the window now: their credit is yet to be sent.
  for (std::uint64_t entered = before; entered < window_end(); ++entered) {
    const auto found = incoming_.find(entered);
    if (found == incoming_.end() || !found->second.is_expected) continue;
    if (const Result<bool> counted = count(found->second); !counted) return counted.error();
  }
  return window_end() > before;
}

}  // namespace maestro
