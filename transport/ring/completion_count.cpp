// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/completion_count.hpp"

namespace maestro {

CompletionCounter::CompletionCounter(std::uint32_t slots) {
  check_immediate_limits(1, slots).or_throw();
  slots_.resize(slots);
}

Error CompletionCounter::outside_window(std::uint64_t seq) const {
  return {ErrorCode::internal, "sequence " + std::to_string(seq) + " lies outside the ring's window " +
                                   std::to_string(released_) + ".." + std::to_string(released_ + slots_.size() - 1)};
}

Result<bool> CompletionCounter::expect(std::uint64_t seq, std::uint64_t writes) {
  if (!in_window(seq)) return outside_window(seq);
  auto& slot = slot_of(seq);
  if (slot.is_expected) {
    return Error{ErrorCode::internal, "sequence " + std::to_string(seq) + " was announced twice"};
  }
  if (slot.arrived > writes) {
    return Error{ErrorCode::corrupt, "sequence " + std::to_string(seq) + " has received " +
                                         std::to_string(slot.arrived) + " writes, but should have only " +
                                         std::to_string(writes)};
  }
  slot.is_expected = true;
  slot.expected = writes;
  return slot.is_complete();
}

Arrival CompletionCounter::arrived(const Immediate& immediate, std::uint64_t n) {
  const auto seq = sequence_of(immediate);
  if (!in_window(seq) || immediate.slot != seq % slots_.size()) return Arrival::stale;  // CC-4
  auto& slot = slot_of(seq);
  if (slot.is_released) return Arrival::stale;
  const bool was_complete = slot.is_complete();
  slot.arrived += n;
  if (slot.is_expected && slot.arrived > slot.expected) return Arrival::excess;
  return slot.is_complete() && !was_complete ? Arrival::complete : Arrival::pending;
}

void CompletionCounter::forget_incomplete() {
  for (Slot& slot : slots_) {
    if (!slot.is_complete()) slot.arrived = 0;
  }
}

Status CompletionCounter::release(std::uint64_t seq) {
  if (!in_window(seq)) return outside_window(seq);
  auto& slot = slot_of(seq);
  if (slot.is_released || !slot.is_complete()) {
    return Error{ErrorCode::internal, "sequence " + std::to_string(seq) + " was released " +
                                          (slot.is_released ? "twice" : "before all its writes had arrived")};
  }
  slot.is_released = true;
  while (slot_of(released_).is_released) slot_of(released_++) = Slot();  // CC-5
  return {};
}

}  // namespace maestro
