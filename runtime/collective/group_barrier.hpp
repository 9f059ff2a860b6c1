// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a group meet, in one process: any number of threads, any number of times.
//
// GB-1: nobody leaves open() or meet() before all ranks have come; what they wrote before is seen by all after.
// GB-2: open() gives the same answer to all ranks: true when all had come before abort(), false otherwise. Once false
// it
//       is false for ever.
// GB-3: after open() was true, meet() waits for all ranks whatever abort() does: between the two a rank may read what
//       its peers own, for none of them leaves.
#pragma once

#include <atomic>
#include <cstdint>

namespace maestro {

/// Every rank calls the same sequence of open() and meet(). Thread-safe.
class GroupBarrier {
 public:
  /// `spins`: how often a waiting rank looks before it sleeps; 0 where ranks share cores.
  GroupBarrier(std::int64_t ranks, int spins) : ranks_(static_cast<std::uint32_t>(ranks)), spins_(spins) {}
  /// GB-2.
  [[nodiscard]] bool open();
  /// GB-3.
  void meet();
  /// Wakes whoever waits in open(). Any thread; idempotent.
  void abort();
  [[nodiscard]] bool aborted() const { return (word_.load(std::memory_order_acquire) & aborted_bit) != 0; }

 private:
  static constexpr std::uint32_t aborted_bit = 1;
  static constexpr std::uint32_t one_phase = 2;

  /// True for the last rank of this phase.
  bool arrive();
  /// Waits until the word is no longer `seen`.
  [[nodiscard]] std::uint32_t next_word(std::uint32_t seen) const;

  std::uint32_t ranks_;
  int spins_;
  alignas(64) std::atomic<std::uint32_t> arrived_ = 0;
  /// Phases passed * one_phase + aborted_bit: one word, so that "all have come" and "aborted" have an order (GB-2).
  alignas(64) std::atomic<std::uint32_t> word_ = 0;
};

}  // namespace maestro
