// SPDX-License-Identifier: Apache-2.0
// The order in which a run visits the samples of a corpus: a fresh permutation every epoch, computed, not stored.
//
// SM-1 (each epoch a permutation): positions [e * samples, (e + 1) * samples) visit every sample exactly once, for
//       every epoch e.
// SM-2 (stateless): at(position) depends on (seed, samples, position) only, on every platform: a resumed run continues
//       at its position.
// SM-3 (mixture): of each 1,024 positions from a multiple of 1,024 on, a source has its share by weight (the largest
//       remainders rounded up), and visits its own samples as SM-1 has it, whatever the other sources are.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

/// The samples of a source, which stand one behind the other, and how often they come beside those of others.
struct SampleSource {
  std::uint64_t samples = 0;
  double weight = 1;  ///< positive; only its ratio to the others' matters
};

/// Returns the places of each source among 1,024 positions (SM-3).
[[nodiscard]] std::vector<std::uint64_t> shares_of(const std::vector<SampleSource>& sources);

/// Pure and stateless: thread-safe. A permutation is a keyed Feistel network over the next power of four, walked until
/// it lands inside the corpus (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains", cycle walking):
/// O(1) time (at most four walks on average, more in a corpus of a handful of samples) and memory.
class Sampler {
 public:
  /// Throws JobError when samples == 0.
  Sampler(std::uint64_t seed, std::uint64_t samples) : Sampler(seed, {{samples, 1.0}}) {}
  /// Throws JobError when there is no source, or a source without samples or that has no place in 1,024 positions.
  Sampler(std::uint64_t seed, const std::vector<SampleSource>& sources);

  [[nodiscard]] SampleId at(std::uint64_t position) const;
  [[nodiscard]] std::uint64_t epoch(std::uint64_t position) const { return position / samples_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }

 private:
  struct Source {
    std::uint64_t seed;
    std::uint64_t samples;
    std::uint64_t first;  // sample
    std::uint64_t share;  // of 1,024 positions
    unsigned half_bits;   // bits of each half of the Feistel network
  };
  /// A position of a block: the source, and its number among those of this source.
  struct Place {
    std::uint32_t source;
    std::uint32_t number;
  };
  void share_out(const std::vector<SampleSource>& sources);
  [[nodiscard]] static std::uint64_t visited(const Source& source, std::uint64_t position);

  std::uint64_t seed_;
  std::uint64_t samples_ = 0;
  std::vector<Source> sources_;
  std::vector<Place> places_;  // of a block; empty with a single source
};

}  // namespace maestro
