// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/fourier.hpp"

#include <numbers>

namespace maestro {

namespace {

/// Returns a product without the care for infinities of std::complex.
std::complex<double> times(const std::complex<double>& a, const std::complex<double>& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

}  // namespace

Fourier::Fourier(std::size_t length) : roots_(length) {
  for (std::size_t at = 0; at < length; ++at) {
    roots_[at] = std::polar(1.0, -2.0 * std::numbers::pi * static_cast<double>(at) / static_cast<double>(length));
  }
  for (std::size_t rest = length, factor = 2; rest > 1; ++factor) {
    for (; rest % factor == 0; rest /= factor) factors_.push_back(factor);
  }
}

void Fourier::transform(const Part& part, std::complex<double>* terms, std::complex<double>* to) const {
  if (part.count == 1) {
    *to = *part.from;
    return;
  }
  const std::size_t radix = factors_[part.factor], inside = part.count / radix, turn = roots_.size() / radix;
  for (std::size_t at = 0; at < radix; ++at) {
    transform({part.from + at * part.stride, part.stride * radix, inside, part.factor + 1}, terms, to + at * inside);
  }
  for (std::size_t k = 0; k < inside; ++k) {
    for (std::size_t at = 0; at < radix; ++at) {
      terms[at] = times(to[at * inside + k], roots_[at * k * part.stride]);
    }
    for (std::size_t out = 0; out < radix; ++out) {
      std::complex<double> sum = terms[0];
      for (std::size_t at = 1; at < radix; ++at) sum += times(terms[at], roots_[at * out % radix * turn]);
      to[out * inside + k] = sum;
    }
  }
}

void Fourier::transform(std::span<const std::complex<double>> from, std::span<std::complex<double>> to) const {
  std::vector<std::complex<double>> terms(factors_.empty() ? 1 : factors_.back());
  transform({from.data(), 1, roots_.size(), 0}, terms.data(), to.data());
}

}  // namespace maestro
