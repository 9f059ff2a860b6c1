// SPDX-License-Identifier: Apache-2.0
// A set of small numbers that finds the next member in a few instructions: ready tasks, by their place in an order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace maestro {

/// Numbers 0 .. universe - 1. Has a bit for each, and a summary bit for each word that is not empty. Not thread-safe.
class PrioritySet {
 public:
  explicit PrioritySet(std::size_t universe) : words_((universe + 63) / 64 + 1), summary_(words_.size() / 64 + 1) {}

  void clear() {
    words_.assign(words_.size(), 0);
    summary_.assign(summary_.size(), 0);
    count_ = 0;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }

  /// Inserts `rank`, which is not in the set.
  void insert(int rank) {
    const auto bit = static_cast<std::size_t>(rank);
    words_[bit >> 6] |= std::uint64_t{1} << (bit & 63);
    summary_[bit >> 12] |= std::uint64_t{1} << ((bit >> 6) & 63);
    ++count_;
  }
  /// Erases `rank`, which is in the set.
  void erase(int rank) {
    const auto bit = static_cast<std::size_t>(rank);
    words_[bit >> 6] &= ~(std::uint64_t{1} << (bit & 63));
    if (words_[bit >> 6] == 0) summary_[bit >> 12] &= ~(std::uint64_t{1} << ((bit >> 6) & 63));
    --count_;
  }

  /// Returns the smallest member that is `from` or more; -1 when there is none.
  [[nodiscard]] int next(int from) const {
    const auto bit = static_cast<std::size_t>(from);
    std::size_t word = bit >> 6;
    if (word >= words_.size()) return -1;
    if (const std::uint64_t rest = words_[word] >> (bit & 63); rest != 0) return from + std::countr_zero(rest);
    ++word;
    std::size_t block = word >> 6;
    if (block >= summary_.size()) return -1;
    std::uint64_t blocks = (summary_[block] >> (word & 63)) << (word & 63);
    while (blocks == 0) {
      if (++block >= summary_.size()) return -1;
      blocks = summary_[block];
    }
    word = (block << 6) + static_cast<std::size_t>(std::countr_zero(blocks));
    return static_cast<int>(word << 6) + std::countr_zero(words_[word]);
  }

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> summary_;
  std::size_t count_ = 0;
};

}  // namespace maestro
