// SPDX-License-Identifier: Apache-2.0
// The samples that generators made for the open steps of a run, on rank 0.
//
// SZ-1 (while its step is open): a sample can be read from put() until drop() of its step.
// SZ-2 (one content): a sample has a single content: a second put() must repeat the first.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

/// A prompt of m tokens and its completion y of c tokens. As a training sample it has m + c - 1 positions: the tokens
/// of the prompt and of the completion but its last, with the completion's tokens as the targets of the last c
/// positions.
struct MadeSample {
  std::vector<std::int32_t> prompt;      ///< at least a token
  std::vector<std::int32_t> completion;  ///< at least a token; a stop token, if there is one, is the last
  std::vector<float> log_probabilities;  ///< values for `completion`, as it was drawn
  bool operator==(const MadeSample&) const = default;

  [[nodiscard]] std::int64_t positions() const { return std::ssize(prompt) + std::ssize(completion) - 1; }
};

/// Thread-safe.
class SampleStore {
 public:
  /// Throws JobError(internal) if the sample is there with another content (SZ-2).
  void put(const MadeSampleId& id, MadeSample sample);
  /// Returns the number of positions. Throws std::out_of_range for an unknown sample, as read().
  [[nodiscard]] std::int64_t length(const MadeSampleId& id) const;
  /// Returns the number of positions with a target.
  [[nodiscard]] std::int64_t targets(const MadeSampleId& id) const;
  /// Fills tokens (T) and targets (T); without target: `ignored_target`. Throws std::invalid_argument for spans of
  /// another size.
  void read(const MadeSampleId& id, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  /// Returns the sample.
  [[nodiscard]] MadeSample sample(const MadeSampleId& id) const;
  /// Fills log_probabilities (T), with which the targets were drawn; without target: 0. Throws as read().
  void sampled(const MadeSampleId& id, std::span<float> log_probabilities) const;
  void clear();
  /// Removes the samples of a step.
  void drop(StepId step);
  [[nodiscard]] std::size_t size() const;

 private:
  [[nodiscard]] const MadeSample& at(const MadeSampleId& id) const;
  /// Returns the sample, which has this many positions.
  [[nodiscard]] const MadeSample& at(const MadeSampleId& id, std::size_t positions) const;

  mutable std::mutex mutex_;  // guards samples_
  std::map<MadeSampleId, MadeSample> samples_;
};

}  // namespace maestro
