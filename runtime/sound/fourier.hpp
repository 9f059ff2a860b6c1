// SPDX-License-Identifier: Apache-2.0
// The discrete Fourier transform, in f64, by mixed radices (Cooley and Tukey 1965).
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace maestro {

/// Transforms of one length. Immutable; any thread.
class Fourier {
 public:
  explicit Fourier(std::size_t length);

  /// Writes to[k] = sum over t of from[t] exp(-2 pi i k t / length). Both have `length` values, apart in memory.
  void transform(std::span<const std::complex<double>> from, std::span<std::complex<double>> to) const;

 private:
  /// An input's values at every `stride`-th place.
  struct Part {
    const std::complex<double>* from = nullptr;
    std::size_t stride = 1;
    std::size_t count = 0;
    std::size_t factor = 0;  // number of its first factor
  };
  /// Writes the transform of a part. `terms` has room for the largest factor.
  void transform(const Part& part, std::complex<double>* terms, std::complex<double>* to) const;

  std::vector<std::size_t> factors_;         // prime, ascending
  std::vector<std::complex<double>> roots_;  // exp(-2 pi i n / length)
};

}  // namespace maestro
