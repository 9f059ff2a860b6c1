// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction and errno of mathematics (CMakeLists.txt): the loops are vectorised, and round equally
// on every instruction set.
#include "runtime/core/normal_values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/core/usable_cores.hpp"

namespace maestro {

namespace {

constexpr std::size_t block_pairs = 256;
constexpr std::size_t part_pairs = std::size_t{1} << 19;  // for a thread: some milliseconds

/// Returns the natural logarithm of a positive normal number.
inline float log_of(float x) {
  constexpr std::int32_t root_half = 0x3f3504f3;  // sqrt(1/2)
  const std::int32_t reduced = std::bit_cast<std::int32_t>(x) - root_half;
  const auto exponent = static_cast<float>(reduced >> 23);
  const float m = std::bit_cast<float>((reduced & 0x007fffff) + root_half) - 1.0F;
  float p = m * 7.0376836292e-2F - 1.1514610310e-1F;
  p = p * m + 1.1676998740e-1F;
  p = p * m - 1.2420140846e-1F;
  p = p * m + 1.4249322787e-1F;
  p = p * m - 1.6668057665e-1F;
  p = p * m + 2.0000714765e-1F;
  p = p * m - 2.4999993993e-1F;
  p = p * m + 3.3333331174e-1F;
  const float square = m * m;
  p = p * m * square - exponent * 2.12194440e-4F - square * 0.5F;
  return m + p + exponent * 0.693359375F;
}

/// Computes two normal numbers from 64 random bits: the upper half is the radius, the lower half a point on the circle.
inline void pair_of(std::int32_t upper, std::int32_t lower, float deviation, float* values) {
  const auto bits = static_cast<std::int32_t>(static_cast<std::uint32_t>(upper) >> 1);
  const float uniform = (static_cast<float>(bits) + 0.5F) * 0x1p-31F;  // in (0, 1]
  const float radius = deviation * std::sqrt(-2.0F * log_of(uniform));
  constexpr auto step = static_cast<float>(std::numbers::pi / 2 * 0x1p-32);
  const float angle = static_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(lower) << 2)) * step;
  const float square = angle * angle;  // the angle lies within pi / 4 of 0
  float sine = square * -1.9515295891e-4F + 8.3321608736e-3F;
  sine = (sine * square - 1.6666654611e-1F) * square * angle + angle;
  float cosine = square * 2.443315711809948e-5F - 1.388731625493765e-3F;
  cosine = (cosine * square + 4.166664568298827e-2F) * square * square - 0.5F * square + 1.0F;
  const std::int32_t sign = lower & INT32_MIN;  // the two highest bits choose the quarter
  const auto signed_radius = std::bit_cast<float>(std::bit_cast<std::int32_t>(radius) ^ sign);
  const std::int32_t swapped = -(lower >> 30 & 1);
  const auto first = std::bit_cast<std::int32_t>(cosine), second = std::bit_cast<std::int32_t>(sine);
  const std::int32_t exchanged = (first ^ second) & swapped;
  values[0] = signed_radius * std::bit_cast<float>(first ^ exchanged);
  values[1] = signed_radius * std::bit_cast<float>(second ^ exchanged);
}

/// Fills values from the pair of the next draw on.
void fill_pairs(Random random, float scale, std::span<float> values) {
  while (!values.empty()) {
    std::int32_t upper[block_pairs], lower[block_pairs];
    for (std::size_t i = 0; i < block_pairs; ++i) {
      const std::uint64_t word = random.next();
      upper[i] = static_cast<std::int32_t>(word >> 32);
      lower[i] = static_cast<std::int32_t>(word);
    }
    float pairs[2 * block_pairs];
    for (std::size_t i = 0; i < block_pairs; ++i) pair_of(upper[i], lower[i], scale, pairs + 2 * i);
    const std::size_t count = std::min(values.size(), 2 * block_pairs);
    std::copy_n(pairs, count, values.begin());
    values = values.subspan(count);
  }
}

}  // namespace

void fill_normal(std::uint64_t seed, std::uint64_t stream, double deviation, std::span<float> values) {
  const std::uint64_t key = Random(seed, stream).state().key;
  const auto scale = static_cast<float>(deviation);
  const std::size_t parts = values.size() < 2 * part_pairs ? 1 : usable_cores().size();
  const std::size_t pairs = std::max(part_pairs, values.size() / 2 / parts + 1);  // for each thread
  std::vector<std::jthread> threads;
  for (std::size_t first = 0; 2 * first < values.size(); first += pairs) {
    const auto fill = [=, part = values.subspan(2 * first, std::min(2 * pairs, values.size() - 2 * first))] {
      fill_pairs(Random(RandomState{key, first}), scale, part);
    };
    if (2 * (first + pairs) >= values.size()) return fill();
    try {
      threads.emplace_back(fill);
    } catch (const std::system_error&) {  // the system refuses a thread
      fill();
    }
  }
}

}  // namespace maestro
