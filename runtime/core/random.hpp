// SPDX-License-Identifier: Apache-2.0
// Random numbers that depend only on (seed, stream, draw): equal on every platform, thread and process.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace maestro {

inline constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15u;

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators"): a bijection
/// of 64-bit words whose every output bit depends on every input bit.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

/// Returns a well-mixed word from two; combines seeds, streams and epochs.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t first, std::uint64_t second) {
  return mix64(mix64(first + golden_gamma) + second * golden_gamma + 1);
}

/// The state of a Random in a checkpoint.
struct RandomState {
  std::uint64_t key = 0;
  std::uint64_t draws = 0;
  friend constexpr bool operator==(RandomState, RandomState) = default;
};

/// Counter-based generator: draw n is mix64(key + n * golden_gamma), which is SplitMix64 started at `key`. Streams of
/// the same seed are independent for practical purposes. Not thread-safe; not for secrets.
class Random {
 public:
  constexpr explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : state_{mix64(seed, stream), 0} {}
  constexpr explicit Random(RandomState state) : state_(state) {}

  [[nodiscard]] constexpr std::uint64_t next() { return mix64(state_.key + golden_gamma * ++state_.draws); }
  /// Returns a number in [0, 1), 53 bits.
  [[nodiscard]] constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Returns a uniform number in [0, bound); bound > 0. The bias, bound / 2^64, is far too small to affect a run.
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  /// Returns a number of mean 0 and variance 1 (Box and Muller 1958). Always two draws, so that the position determines
  /// the number of values drawn.
  [[nodiscard]] double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));  // 1 - uniform is never 0
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  [[nodiscard]] constexpr RandomState state() const { return state_; }

 private:
  RandomState state_;
};

}  // namespace maestro
