// SPDX-License-Identifier: Apache-2.0
// The order in which a run visits samples: a new permutation of the corpus every epoch, computed instead of stored.
//
// SM-1 (each epoch a permutation): positions [e * samples, (e + 1) * samples) visit every sample exactly once, for
//       every epoch e.
// SM-2 (stateless): at(position) depends on (seed, samples, position) only, on every platform: a resumed run continues
//       at its position.
// SM-3 (mixture): a source has a share of each 1,024 positions from a multiple of 1,024, by weight (the largest
//       remainders rounded up). At these positions it visits its samples as in SM-1, whatever the other sources are.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

/// A source in a mixture; its samples have consecutive ids.
struct SampleSource {
  std::uint64_t samples = 0;
  double weight = 1;  ///< positive weight, relative to the other sources' weights
};

/// Returns each source's number of places among 1,024 positions (SM-3).
[[nodiscard]] std::vector<std::uint64_t> shares_of(const std::vector<SampleSource>& sources);

/// Pure and stateless: thread-safe. A permutation is a keyed Feistel network over the next power of four, applied until
/// the result is a sample (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains", cycle walking). It takes
/// O(1) memory and time: at most four walks on average, more for a corpus of a handful of samples.
class Sampler {
 public:
  /// Throws JobError if samples == 0.
  Sampler(std::uint64_t seed, std::uint64_t samples) : Sampler(seed, {{samples, 1.0}}) {}
  /// Throws JobError if `sources` is empty, or if a source is empty or gets none of 1,024 positions.
  Sampler(std::uint64_t seed, const std::vector<SampleSource>& sources);

  [[nodiscard]] SampleId at(std::uint64_t position) const;
  [[nodiscard]] std::uint64_t epoch(std::uint64_t position) const { return position / samples_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }

 private:
  struct Source {
    std::uint64_t seed;
    std::uint64_t samples;
    std::uint64_t first;  // first sample
    std::uint64_t share;  // positions among 1,024
    unsigned half_bits;   // bits in each half of the Feistel network
  };
  /// A position of a block: its source, and its number among the source's positions.
  struct Place {
    std::uint32_t source;
    std::uint32_t number;
  };
  void share_out(const std::vector<SampleSource>& sources);
  [[nodiscard]] static std::uint64_t visited(const Source& source, std::uint64_t position);

  std::uint64_t seed_;
  std::uint64_t samples_ = 0;
  std::vector<Source> sources_;
  std::vector<Place> places_;  // places in a block; empty with a single source
};

}  // namespace maestro
