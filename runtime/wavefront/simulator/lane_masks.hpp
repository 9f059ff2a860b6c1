// SPDX-License-Identifier: Apache-2.0
// One bit per lane for each fact that decides whether the lane can start a pass: 64 lanes of a section in a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/wavefront/planning_graph.hpp"

namespace maestro {

/// Not thread-safe. Bits without a lane stay 0.
class LaneMasks {
 public:
  explicit LaneMasks(std::span<const PlanningGraph::Section> sections) {
    std::size_t words = 0;
    for (const PlanningGraph::Section& section : sections) {
      first_word_.push_back(words);
      for (int replica = 0; replica < section.lanes; ++replica) {
        bits_.push_back({words + static_cast<std::size_t>(replica / 64), std::uint64_t{1} << (replica % 64)});
      }
      words += static_cast<std::size_t>((section.lanes + 63) / 64);
    }
    words_.resize(words);
  }

  /// Marks all lanes as idle, with room and without a gradient.
  void reset() {
    words_.assign(words_.size(), {});
    for (const Bit& bit : bits_) {
      words_[bit.word].idle |= bit.mask;
      words_[bit.word].room |= bit.mask;
    }
  }

  void set_idle(int lane, bool value) { set(lane, &Word::idle, value); }
  /// Marks whether the lane is below its in-flight limit.
  void set_room(int lane, bool value) { set(lane, &Word::room, value); }
  /// Marks whether a gradient waits on the lane.
  void set_gradient(int lane, bool value) { set(lane, &Word::gradient, value); }

  /// Returns the lanes 64 word .. 64 word + 63 of a section that are idle and have a gradient or, if `forward` is true,
  /// room.
  [[nodiscard]] std::uint64_t candidates(int section, int word, bool forward) const {
    const Word& lanes = words_[first_word_[section] + static_cast<std::size_t>(word)];
    return lanes.idle & (lanes.gradient | (forward ? lanes.room : 0));
  }

 private:
  struct Word {
    std::uint64_t idle = 0;
    std::uint64_t room = 0;
    std::uint64_t gradient = 0;
  };
  struct Bit {
    std::size_t word = 0;
    std::uint64_t mask = 0;
  };

  void set(int lane, std::uint64_t Word::*fact, bool value) {
    const Bit bit = bits_[lane];
    std::uint64_t& word = words_[bit.word].*fact;
    word = value ? word | bit.mask : word & ~bit.mask;
  }

  std::vector<std::size_t> first_word_;  // by section
  std::vector<Bit> bits_;                // by lane
  std::vector<Word> words_;
};

}  // namespace maestro
