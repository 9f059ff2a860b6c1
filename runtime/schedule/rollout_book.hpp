// SPDX-License-Identifier: Apache-2.0
// Who makes the samples of a step: prompts are handed out one by one to the makers that have room for them, so a fast
// maker makes more. Pure; who makes a sample changes no sample.
//
// OX-1 (each once): a prompt is with one maker at most, until its sample is made or the makers begin anew.
// OX-2 (bound): a maker holds at most `most` prompts.
// OX-3 (nothing is lost): after makers() every prompt whose sample is not made is handed out again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace maestro {

/// Not thread-safe.
class RolloutBook {
 public:
  /// `most`: prompts that a maker holds at most, 1 or more.
  explicit RolloutBook(std::int64_t most) : most_(most) {}

  /// Opens a step with these prompts; their samples are missing. A step that was open is forgotten.
  void open(std::vector<std::uint32_t> numbers);
  /// Forgets the open step. Makers go on with the prompts that they hold.
  void close();
  /// All makers begin anew and hold nothing.
  void makers(std::size_t count);
  struct Order {
    std::size_t maker = 0;
    std::uint32_t number = 0;
  };
  /// Returns the next prompt with the maker that holds the fewest; nothing if no prompt waits or no maker has room.
  [[nodiscard]] std::optional<Order> next();
  /// A maker has ended a prompt of any step.
  void ended(std::size_t maker) { --held_.at(maker); }
  /// Counts a sample of the open step. Returns false if it was made before.
  bool made(std::uint32_t number);
  /// Returns whether all samples of the open step are made.
  [[nodiscard]] bool complete() const { return missing_.empty(); }
  [[nodiscard]] std::size_t missing() const { return missing_.size(); }

 private:
  std::int64_t most_;
  std::vector<std::int64_t> held_;      // by maker
  std::set<std::uint32_t> missing_;     // samples that are not made
  std::vector<std::uint32_t> waiting_;  // prompts that are not handed out, last first
};

}  // namespace maestro
