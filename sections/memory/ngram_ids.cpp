// SPDX-License-Identifier: Apache-2.0
#include "sections/memory/ngram_ids.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "runtime/core/random.hpp"

namespace maestro {

namespace {

bool is_prime(std::int64_t number) {
  if (number < 2) return false;
  for (std::int64_t divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) return false;
  }
  return true;
}

}  // namespace

NGramIds::NGramIds(const NGramShape& shape) : shape_(shape) {
  assert(shape.orders >= 2 && shape.heads >= 1 && shape.rows >= 1 && shape.vocabulary >= 1);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / shape.vocabulary;
  const auto half = static_cast<std::uint64_t>(std::max<std::int64_t>(1, most / 2));
  for (std::uint64_t i = 1; i <= static_cast<std::uint64_t>(shape.orders); ++i) {
    // SplitMix64 adds its increment before it mixes.
    const std::uint64_t word = mix64(static_cast<std::uint64_t>(shape.seed) + golden_gamma * (i + 1));
    multipliers_.push_back(static_cast<std::int64_t>(2 * (word % half) + 1));
  }
  std::int64_t prime = shape.rows - 1;
  for (std::int64_t head = 0; head < shape.all_heads(); ++head) {
    do ++prime;
    while (!is_prime(prime));
    offsets_.push_back(table_rows_);
    primes_.push_back(prime);
    table_rows_ += prime;
  }
  table_rows_ = (table_rows_ + shape.divisor - 1) / shape.divisor * shape.divisor;
}

void NGramIds::rows_of(std::span<const std::int32_t> before, std::span<const std::int32_t> tokens,
                       std::span<std::int32_t> to) const {
  assert(std::ssize(to) == std::ssize(tokens) * shape_.all_heads());
  const auto orders = static_cast<std::size_t>(shape_.orders);
  std::vector<std::int32_t> last(orders, shape_.end_of_text);  // s_0, s_1, ...
  const auto take = [&](std::int32_t token) {
    // The token after an end of text begins the next text.
    if (last.front() == shape_.end_of_text) std::ranges::fill(last, shape_.end_of_text);
    std::ranges::rotate(last, last.end() - 1);
    last.front() = token;
  };
  for (const std::int32_t token : before) take(token);
  std::size_t at = 0;
  for (const std::int32_t token : tokens) {
    take(token);
    const auto term = [&](std::size_t i) {
      return static_cast<std::uint64_t>(last[i]) * static_cast<std::uint64_t>(multipliers_[i]);
    };
    std::uint64_t word = term(0);
    std::size_t head = 0;
    for (std::size_t n = 2; n <= orders; ++n) {
      word ^= term(n - 1);
      const auto value = static_cast<std::int64_t>(word);
      for (std::int64_t j = 0; j < shape_.heads; ++j, ++head) {
        const std::int64_t rest = value % primes_[head];
        to[at++] = static_cast<std::int32_t>(offsets_[head] + (rest < 0 ? rest + primes_[head] : rest));
      }
    }
  }
}

}  // namespace maestro
