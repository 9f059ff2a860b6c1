// SPDX-License-Identifier: Apache-2.0
// The assignment of a corpus's tokens to samples and splits: pure arithmetic. The layout depends on (tokens, sequence,
// validation fraction, mode) only.
//
// IX-1 (splits share no token): no token is read (as input or target) by samples of both splits.
// IX-2 (each input once): in a split no position is the input of two samples.
// IX-3 (length): every sample has at least two and at most `sequence` positions, each with a target.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

enum class Split : std::uint8_t { train, validation };

enum class SplitMode : std::uint8_t {
  tail,        ///< validation is the last `validation_fraction` of the tokens
  interleaved  ///< validation is every k-th block of 16 sequences (k = 1 / fraction, spread evenly)
};

struct SampleIndexOptions {
  std::int64_t tokens = 0;
  std::int64_t sequence = 128;       ///< positions of a full sample
  double validation_fraction = 0.1;  ///< fraction in [0, 1)
  SplitMode mode = SplitMode::tail;
};

/// Immutable: thread-safe. A sample with n positions at `begin` reads tokens [begin, begin + n) as inputs and [begin +
/// 1, begin + n + 1) as targets. A run is consecutive tokens of the same split. It is divided into windows of
/// `sequence` positions; its last window may be shorter, and is dropped if it has fewer than two positions. Interleaved
/// blocks shrink to 8, 4 or 2 sequences if the corpus has fewer than four validation blocks otherwise.
class SampleIndex {
 public:
  struct Window {
    std::int64_t begin = 0;   ///< first token
    std::int64_t length = 0;  ///< positions
  };

  /// Throws JobError that names the key if sequence or fraction is out of range. Ignores the number of tokens.
  static void check(const SampleIndexOptions& options);
  /// Throws JobError if the options are out of range, or if the tokens are too few for a full sample in each split
  /// (only in training if the fraction is 0); the message contains the number of tokens and the number needed.
  explicit SampleIndex(const SampleIndexOptions& options);

  [[nodiscard]] std::uint64_t samples(Split split) const;
  /// Returns the sample's window. Throws std::out_of_range for an unknown sample.
  [[nodiscard]] Window window(Split split, SampleId sample) const;

 private:
  struct Run {
    std::int64_t begin;
    std::uint64_t first_sample;
    std::uint64_t samples;
    std::int64_t positions;
  };
  struct Side {
    std::vector<Run> runs;
    std::uint64_t samples = 0;
  };
  [[nodiscard]] const Side& side(Split split) const { return split == Split::train ? train_ : validation_; }
  void lay_out_tail(const SampleIndexOptions& options);
  void lay_out_blocks(const SampleIndexOptions& options);
  void add_run(Split split, std::int64_t begin, std::int64_t end);

  std::int64_t sequence_;
  Side train_;
  Side validation_;
};

}  // namespace maestro
