// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/credit_ledger.hpp"

#include <algorithm>
#include <cassert>

namespace maestro {
namespace {

std::uint32_t at_least_one(std::uint32_t slots) {
  if (slots == 0) throw JobError("a ring of 0 slots can hold nothing; set transport.slots to 1 or more");
  return slots;
}

std::string window_of(std::uint64_t released, std::uint64_t slots) {
  return std::to_string(released) + ".." + std::to_string(released + slots - 1);
}

}  // namespace

CreditLedger::CreditLedger(Epoch epoch, std::uint32_t slots, std::uint64_t released)
    : epoch_(epoch), slots_(at_least_one(slots)), released_(released), sent_end_(released) {}

Status CreditLedger::sent(std::uint64_t seq) {
  if (!may_send(seq)) {
    return Error{ErrorCode::internal, "sequence " + std::to_string(seq) + " was sent without a credit; the window is " +
                                          window_of(released_, slots_)};
  }
  sent_end_ = std::max(sent_end_, seq + 1);
  return {};
}

Status CreditLedger::grant(Epoch epoch, std::uint64_t released) {
  if (epoch != epoch_) return {};  // CL-3
  if (released > sent_end_) {
    return Error{ErrorCode::corrupt, "a grant reports " + std::to_string(released) + " released sequences, but only " +
                                         std::to_string(sent_end_) + " were sent (epoch " +
                                         std::to_string(epoch_.value()) + ")"};
  }
  released_ = std::max(released_, released);  // CL-2
  assert(released_ <= sent_end_ && sent_end_ <= released_ + slots_);
  return {};
}

ReleaseLedger::ReleaseLedger(std::uint32_t slots) : early_(at_least_one(slots), false) {}

Result<bool> ReleaseLedger::release(std::uint64_t seq) {
  const auto slots = early_.size();
  if (seq < released_ || seq >= released_ + slots) {
    return Error{ErrorCode::internal,
                 "sequence " + std::to_string(seq) + " was released outside the window " + window_of(released_, slots)};
  }
  if (early_[seq % slots]) {
    return Error{ErrorCode::internal, "sequence " + std::to_string(seq) + " was released twice"};
  }
  early_[seq % slots] = true;
  const bool grows = seq == released_;
  while (early_[released_ % slots]) early_[released_++ % slots] = false;
  return grows;
}

}  // namespace maestro
