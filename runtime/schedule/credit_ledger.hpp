// SPDX-License-Identifier: Apache-2.0
// Credits of a ring of slots: the sequences that a producer may send, and the released sequences of its consumer.
//
// Sequences 0, 1, 2, ... are counted per edge and consumer replica; sequence s lives in slot s % slots. A grant states
// the number of sequences released so far, so the next grant corrects a lost, repeated or late one.
//
// CL-1 (window): a sequence may be sent iff it is below released + slots; so at most `slots` sequences are in use.
// CL-2 (no minted credit): `released` never shrinks; a duplicate or older grant mints nothing.
// CL-3 (epoch): a grant of another epoch changes nothing.
// CL-4 (released were sent): released <= sent_end at all times; a grant beyond that is an error and changes nothing.
// CL-5 (newest grant decides): after the newest grant has arrived the window is the same, whichever grants arrived
//       before it and in whichever order.
// CL-6 (released prefix): the consumer's grant is the length of the released prefix: a sequence released early waits
//       for earlier sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// The producer's side. Not thread-safe; belongs to the actor that sends. Producers that share a consumer's ring each
/// keep a ledger and report every sequence of the ring as sent, including sequences that the plan assigns to the
/// others, since grants count all of them.
class CreditLedger {
 public:
  /// `slots` is at least 1; 0 throws JobError. The first `released` sequences were sent and released before.
  CreditLedger(Epoch epoch, std::uint32_t slots, std::uint64_t released = 0);

  [[nodiscard]] bool may_send(std::uint64_t seq) const { return seq < released_ + slots_; }
  /// Records that all sequences up to and including `seq` are on their way; a repeated or older report changes nothing.
  /// Returns Error `internal` without a change if the window does not reach `seq` (CL-1).
  Status sent(std::uint64_t seq);
  /// Applies a grant: the consumer has released its first `released` sequences. Returns Error `corrupt` if they were
  /// never sent (CL-4).
  Status grant(Epoch epoch, std::uint64_t released);

  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  /// Returns the highest sequence sent, plus 1.
  [[nodiscard]] std::uint64_t sent_end() const { return sent_end_; }
  /// Returns the number of sequences that may still be sent without another grant.
  [[nodiscard]] std::uint64_t available() const { return released_ + slots_ - sent_end_; }

 private:
  Epoch epoch_;
  std::uint32_t slots_;
  std::uint64_t released_ = 0;
  std::uint64_t sent_end_ = 0;
};

/// The consumer's side: turns releases in any order into the cumulative count that a grant carries. Not thread-safe.
class ReleaseLedger {
 public:
  /// `slots` is at least 1; 0 throws JobError.
  explicit ReleaseLedger(std::uint32_t slots);

  /// Releases a sequence. Returns true if `released()` grew, so that a new grant is worth sending. Returns Error
  /// `internal` without a change if `seq` was released before or is beyond the ring's window.
  Result<bool> release(std::uint64_t seq);
  /// Returns the length of the released prefix (CL-6).
  [[nodiscard]] std::uint64_t released() const { return released_; }

 private:
  std::vector<bool> early_;  // by slot: released, waiting for an earlier sequence
  std::uint64_t released_ = 0;
};

}  // namespace maestro
