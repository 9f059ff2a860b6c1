// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sampler.hpp"

#include <algorithm>
#include <bit>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

// Networks of 1 or 2 bits a half reach few of the permutations; six bits in all reach every order of small corpora.
constexpr unsigned least_half_bits = 3;
constexpr std::uint64_t rounds = 8;

std::uint64_t permuted(std::uint64_t value, std::uint64_t key, unsigned half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t mixed = left ^ (mix64(key + round * golden_gamma, right) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

Sampler::Sampler(std::uint64_t seed, std::uint64_t samples) : seed_(seed), samples_(samples) {
  if (samples == 0) throw JobError("a corpus without samples cannot be sampled");
  const auto bits = static_cast<unsigned>(std::bit_width(samples - 1));
  half_bits_ = std::max(least_half_bits, (bits + 1) / 2);
}

SampleId Sampler::at(std::uint64_t position) const {
  const std::uint64_t key = mix64(seed_, epoch(position));
  std::uint64_t value = position % samples_;
  do {
    value = permuted(value, key, half_bits_);
  } while (value >= samples_);  // ends: a permutation's cycle returns to its start, which lies inside
  return SampleId(value);
}

}  // namespace maestro
