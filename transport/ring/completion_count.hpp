// SPDX-License-Identifier: Apache-2.0
// Counts the RMA writes that have landed in a ring of slots, until a sequence has all of its own.
//
// Networks may deliver writes in any order, and the first of them may land before the message with their number
// arrives; so only the count shows that a sequence is whole.
//
// CC-1 (exact count): a sequence is complete iff it is expected and exactly the expected number of writes has arrived.
// CC-2 (reported once): `complete` is reported once per sequence, by the later of expect() and arrived().
// CC-3 (early arrivals): arrivals before the expectation are kept.
// CC-4 (stale arrivals): an arrival outside the window [released, released + slots), for a sequence released already,
//       or whose slot does not belong to its sequence is stale: it is reported and counted for no sequence.
// CC-5 (slot reuse): a slot counts from zero again once every sequence up to its own is released.
// CC-6 (begun anew): after forget_incomplete() complete sequences are as before, and all others count from zero.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/result.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

enum class Arrival {
  pending,   ///< counted; more are to come, or the expectation is
  complete,  ///< this was the last write of its sequence: the slot may be read
  stale,     ///< of an old or unknown sequence; ignored
  excess,    ///< more writes than expected: the peer broke the protocol, the slot may have been overwritten
};

/// Each pair (edge, consumer replica) has its own. Not thread-safe; belongs to the actor that owns the ring. Writes of
/// an earlier epoch cannot be recognised here: a new epoch registers its memory anew, so that old keys fail, and states
/// its number in every piece header.
class CompletionCounter {
 public:
  /// `slots` lies in 1..max_immediate_slots; anything else throws JobError.
  explicit CompletionCounter(std::uint32_t slots);

  /// States how many writes make up `seq`, headers included. True when they have all arrived already.
  /// Errors, `internal`: outside the window, expected twice. `corrupt`: more have arrived than should.
  Result<bool> expect(std::uint64_t seq, std::uint64_t writes);
  /// Notes `n` writes that carried `immediate`; the caller has routed them here by edge.
  [[nodiscard]] Arrival arrived(const Immediate& immediate, std::uint64_t n = 1);
  /// The writes of incomplete sequences will come again, all of them; their expectations hold.
  void forget_incomplete();
  /// Returns whether all writes of a sequence in the window have arrived, released or not.
  [[nodiscard]] bool complete(std::uint64_t seq) const {
    return in_window(seq) && slots_[seq % slots_.size()].is_complete();
  }
  /// Frees the slot of a complete sequence. Error `internal` when it is not complete or released already.
  Status release(std::uint64_t seq);

  /// The full sequence of an arrival, judged by the present window.
  [[nodiscard]] std::uint64_t sequence_of(const Immediate& immediate) const {
    return unwrap_sequence(immediate.sequence, released_);
  }
  /// Sequences released without a gap; the number in a credit grant.
  [[nodiscard]] std::uint64_t released() const { return released_; }

 private:
  struct Slot {
    std::uint64_t arrived = 0;
    std::uint64_t expected = 0;
    bool is_expected = false;
    bool is_released = false;
    [[nodiscard]] bool is_complete() const { return is_expected && arrived == expected; }
  };
  [[nodiscard]] bool in_window(std::uint64_t seq) const { return seq >= released_ && seq - released_ < slots_.size(); }
  [[nodiscard]] Slot& slot_of(std::uint64_t seq) { return slots_[seq % slots_.size()]; }
  [[nodiscard]] Error outside_window(std::uint64_t seq) const;

  std::vector<Slot> slots_;
  std::uint64_t released_ = 0;
};

}  // namespace maestro
