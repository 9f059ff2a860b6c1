// SPDX-License-Identifier: Apache-2.0
// Credits of one ring of slots: which sequences a producer may send, and which a consumer has given back.
//
// Sequences 0, 1, 2, ... are counted per edge and consumer replica; sequence s lives in slot s % slots. A grant states
// the number of sequences released so far, so a lost, repeated or late grant is mended by the next one.
//
// CL-1: a sequence may be sent iff it is below released + slots; so at most `slots` sequences are in use.
// CL-2: `released` never shrinks; a duplicate or older grant mints nothing.
// CL-3: a grant of another epoch changes nothing.
// CL-4: released <= sent_end at all times; a grant beyond that is an error and changes nothing.
// CL-5: after the newest grant has arrived the window is the same, whatever came before it and in whatever order.
// CL-6: the consumer's grant is the length of the released prefix: a sequence released early waits for those before it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// The producer's side. Not thread-safe; belongs to the actor that sends.
/// Producers that share one consumer's ring each keep a ledger and report every sequence of the ring as sent, their own
/// and those that the plan gives to the others, since grants count all of them.
class CreditLedger {
 public:
  /// `slots` is at least 1; 0 throws JobError.
  CreditLedger(Epoch epoch, std::uint32_t slots);

  [[nodiscard]] bool may_send(std::uint64_t seq) const { return seq < released_ + slots_; }
  /// Notes that all sequences up to and including `seq` are on their way. Saying so again is harmless.
  /// Error `internal` when the window does not reach `seq` (CL-1); nothing changes then.
  Status sent(std::uint64_t seq);
  /// The consumer says that it has released its first `released` sequences.
  /// Error `corrupt` when they were never sent (CL-4).
  Status grant(Epoch epoch, std::uint64_t released);

  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  /// One past the highest sequence sent.
  [[nodiscard]] std::uint64_t sent_end() const { return sent_end_; }
  /// Sequences that may still be sent without another grant.
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

  /// Releases one sequence. True when `released()` grew, that is when a new grant is worth sending.
  /// Error `internal` when `seq` was released before or lies beyond the ring's window; nothing changes then.
  Result<bool> release(std::uint64_t seq);
  /// Length of the released prefix (CL-6).
  [[nodiscard]] std::uint64_t released() const { return released_; }

 private:
  std::vector<bool> early_;  // by slot: released, waiting for an earlier sequence
  std::uint64_t released_ = 0;
};

}  // namespace maestro
