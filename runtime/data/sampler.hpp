// SPDX-License-Identifier: Apache-2.0
// The order in which a run visits the samples of a corpus: a fresh permutation every epoch, computed, not stored.
//
// SM-1 (each epoch a permutation): positions [e * samples, (e + 1) * samples) visit every sample exactly once, for
//       every epoch e.
// SM-2 (stateless): at(position) depends on (seed, samples, position) only, on every platform: a resumed run continues
//       at its position.
#pragma once

#include <cstdint>

#include "runtime/core/ids.hpp"

namespace maestro {

/// Pure and stateless: thread-safe. A permutation is a keyed Feistel network over the next power of four, walked until
/// it lands inside the corpus (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains", cycle walking):
/// O(1) time (at most four walks on average, more in a corpus of a handful of samples) and memory.
class Sampler {
 public:
  /// Throws JobError when samples == 0.
  Sampler(std::uint64_t seed, std::uint64_t samples);

  [[nodiscard]] SampleId at(std::uint64_t position) const;
  [[nodiscard]] std::uint64_t epoch(std::uint64_t position) const { return position / samples_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }

 private:
  std::uint64_t seed_;
  std::uint64_t samples_;
  unsigned half_bits_;  // bits of each half of the Feistel network
};

}  // namespace maestro
