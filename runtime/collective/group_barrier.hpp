// SPDX-License-Identifier: Apache-2.0
// A barrier for the ranks of a group within a process: any number of threads, any number of times.
//
// GB-1 (barrier): no rank leaves open() or meet() before all ranks have entered; their earlier writes are visible to
//       all ranks afterwards.
// GB-2 (same answer): open() returns the same to all ranks: true if all had entered before abort(), false otherwise.
//       After false, it always returns false.
// GB-3 (abort waits): after open() has returned true, meet() waits for all ranks, even after abort(): between the two
//       calls a rank may read its peers' memory, since no peer leaves.
#pragma once

#include <atomic>
#include <cstdint>

namespace maestro {

/// Every rank calls the same sequence of open() and meet(). Thread-safe.
class GroupBarrier {
 public:
  /// `spins`: number of polls of a waiting rank before it sleeps; 0 if ranks share cores.
  GroupBarrier(std::int64_t ranks, int spins) : ranks_(static_cast<std::uint32_t>(ranks)), spins_(spins) {}
  /// Waits for all ranks; returns false after an abort (GB-2).
  [[nodiscard]] bool open();
  /// Waits for all ranks after open() (GB-3).
  void meet();
  /// Wakes the ranks that wait in open(). Any thread; idempotent.
  void abort();
  [[nodiscard]] bool aborted() const { return (word_.load(std::memory_order_acquire) & aborted_bit) != 0; }

 private:
  static constexpr std::uint32_t aborted_bit = 1;
  static constexpr std::uint32_t one_phase = 2;

  /// Returns true for the last rank of this phase.
  bool arrive();
  /// Waits until the word is no longer `seen`.
  [[nodiscard]] std::uint32_t next_word(std::uint32_t seen) const;

  std::uint32_t ranks_;
  int spins_;
  alignas(64) std::atomic<std::uint32_t> arrived_ = 0;
  /// Phases passed * one_phase + aborted_bit: a single word, so that "all have entered" and "aborted" have an order
  /// (GB-2).
  alignas(64) std::atomic<std::uint32_t> word_ = 0;
};

}  // namespace maestro
