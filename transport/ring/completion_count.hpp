// SPDX-License-Identifier: Apache-2.0
// Counts the RMA writes that have landed in a ring of slots, by sequence.
//
// Networks may deliver writes in any order, and the first may land before the message with their number arrives; so
// only the count shows that a sequence is complete.
//
// CC-1 (exact count): a sequence is complete iff it is expected and exactly the expected number of writes has arrived.
// CC-2 (reported once): `complete` is reported once per sequence, by the later of expect() and arrived().
// CC-3 (early arrivals): arrivals before the expectation are kept.
// CC-4 (stale arrivals): an arrival outside the window [released, released + slots), for a sequence released already,
//       or whose slot does not belong to its sequence is stale: it is reported, and no sequence counts it.
// CC-5 (slot reuse): a slot counts from zero again after its sequence and all earlier sequences are released.
// CC-6 (begun anew): after forget_incomplete() complete sequences are unchanged, and all others count from zero.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/result.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

enum class Arrival {
  pending,   ///< counted; more writes, or the expectation, are missing
  complete,  ///< this was the last write of its sequence: the slot may be read
  stale,     ///< write of an old or unknown sequence; ignored
  excess,    ///< more writes than expected: the peer broke the protocol, the slot may have been overwritten
};

/// Each pair (edge, consumer replica) has a counter. Not thread-safe; belongs to the actor that owns the ring. A
/// counter cannot recognise writes of an earlier epoch: a new epoch registers its memory anew, so that old keys fail,
/// and states its number in every piece header.
class CompletionCounter {
 public:
  /// `slots` is in 1..max_immediate_slots; anything else throws JobError.
  explicit CompletionCounter(std::uint32_t slots);

  /// States how many writes make up `seq`, headers included. Returns true if they have all arrived already. Errors:
  /// `internal` outside the window or expected twice, `corrupt` if more have arrived than expected.
  Result<bool> expect(std::uint64_t seq, std::uint64_t writes);
  /// Counts `n` writes that carried `immediate`; the caller has routed them here by edge.
  [[nodiscard]] Arrival arrived(const Immediate& immediate, std::uint64_t n = 1);
  /// Resets incomplete sequences: all their writes will come again. Their expectations hold.
  void forget_incomplete();
  /// Returns whether all writes of a sequence in the window have arrived, released or not.
  [[nodiscard]] bool complete(std::uint64_t seq) const {
    return in_window(seq) && slots_[seq % slots_.size()].is_complete();
  }
  /// Frees the slot of a complete sequence. Error `internal` if it is not complete or already released.
  Status release(std::uint64_t seq);

  /// Returns the full sequence of an arrival, judged by the present window.
  [[nodiscard]] std::uint64_t sequence_of(const Immediate& immediate) const {
    return unwrap_sequence(immediate.sequence, released_);
  }
  /// Returns the number of sequences released without a gap, the number in a credit grant.
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
