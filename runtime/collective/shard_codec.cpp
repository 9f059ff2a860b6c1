// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/shard_codec.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "runtime/core/dtype.hpp"

namespace maestro {

namespace {

constexpr float largest_e4m3 = 448;
constexpr std::uint32_t least_normal = std::bit_cast<std::uint32_t>(0x1p-6f);
constexpr std::uint32_t rebias = (127 - 7) << 3;

/// Returns the code of a value of at most 448, rounded to the nearest, ties to even.
constexpr std::uint8_t to_e4m3(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  const std::uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - rebias;
  // Below the least normal value a code counts units of 2^-9: floats at 2^14 are as far apart.
  const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14f);
  return static_cast<std::uint8_t>(((word >> 24) & 0x80u) | (magnitude < least_normal ? small : normal));
}

constexpr float of_e4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  const float normal = std::bit_cast<float>((magnitude + rebias) << 20);
  const float value = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f : normal;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (std::uint32_t{code & 0x80u} << 24));
}

/// Returns the scale of a block; NaN if a value is not finite.
float scale_of(std::span<const float> values) {
  constexpr std::uint32_t infinity = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());
  std::uint32_t largest = 0;  // bits without the sign sort as absolute values do
  for (const float value : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  if (largest >= infinity) return std::numeric_limits<float>::quiet_NaN();
  return std::max(std::bit_cast<float>(largest) / largest_e4m3, std::numeric_limits<float>::min());
}

WireError error_of(std::span<const float> values, std::span<const float> decoded) {
  constexpr std::size_t lanes = 8;  // sums in a fixed order, which a compiler can keep in vectors
  double errors[lanes] = {}, squares[lanes] = {};
  for (std::size_t first = 0; first < values.size(); first += lanes) {
    const std::size_t count = std::min(lanes, values.size() - first);
    for (std::size_t lane = 0; lane < count; ++lane) {
      const double value = values[first + lane], error = decoded[first + lane] - value;
      errors[lane] += error * error;
      squares[lane] += value * value;
    }
  }
  return {std::accumulate(std::begin(errors), std::end(errors), 0.0),
          std::accumulate(std::begin(squares), std::end(squares), 0.0)};
}

}  // namespace

std::size_t ShardCodec::exact_offset() const {
  const std::size_t codes = format_ == GradientWire::f32 ? 4 : format_ == GradientWire::bf16 ? 2 : 1;
  return (scales() * sizeof(float) + encoded_ * codes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

WireError ShardCodec::encode(std::span<const float> values, std::span<std::byte> to) const {
  assert(values.size() == elements() && to.size() >= bytes());
  if (exact_ > 0) std::memcpy(to.data() + exact_offset(), values.data() + encoded_, exact_ * sizeof(float));
  if (format_ == GradientWire::f32) {
    if (encoded_ > 0) std::memcpy(to.data(), values.data(), encoded_ * sizeof(float));
    return {};
  }
  WireError sums;
  float decoded[block];
  auto* scale = reinterpret_cast<float*>(to.data());
  auto* codes = reinterpret_cast<std::uint8_t*>(to.data() + scales() * sizeof(float));
  auto* halves = reinterpret_cast<bfloat16*>(to.data());
  for (std::size_t first = 0; first < encoded_; first += block) {
    const std::span<const float> from = values.subspan(first, std::min(block, encoded_ - first));
    if (format_ == GradientWire::bf16) {
      std::ranges::transform(from, halves + first, [](float value) { return bfloat16(value); });
    } else {
      *scale = scale_of(from);
      const float factor = 1 / *scale++;
      std::ranges::transform(from, codes + first, [factor](float value) { return to_e4m3(value * factor); });
    }
    decode_encoded(to.data(), first, std::span(decoded, from.size()));
    sums.add(error_of(from, std::span(decoded, from.size())));
  }
  return sums;
}

void ShardCodec::decode_encoded(const std::byte* from, std::size_t first, std::span<float> values) const {
  if (format_ == GradientWire::f32) {
    std::memcpy(values.data(), from + first * sizeof(float), values.size_bytes());
    return;
  }
  if (format_ == GradientWire::bf16) {
    const auto* halves = reinterpret_cast<const bfloat16*>(from) + first;
    std::transform(halves, halves + values.size(), values.begin(), [](bfloat16 half) { return float(half); });
    return;
  }
  const auto* scale = reinterpret_cast<const float*>(from) + first / block;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(from + scales() * sizeof(float)) + first;
  for (std::size_t at = 0; at < values.size(); at += block) {
    const std::size_t count = std::min(block, values.size() - at);
    std::transform(codes + at, codes + at + count, values.begin() + static_cast<std::ptrdiff_t>(at),
                   [factor = *scale](std::uint8_t code) { return of_e4m3(code) * factor; });
    ++scale;
  }
}

void ShardCodec::decode(std::span<const std::byte> from, std::size_t first, std::span<float> values) const {
  assert(first % block == 0 && first + values.size() <= elements() && from.size() >= bytes());
  const std::size_t encoded = first < encoded_ ? std::min(values.size(), encoded_ - first) : 0;
  if (encoded > 0) decode_encoded(from.data(), first, values.first(encoded));
  if (encoded == values.size()) return;
  const std::size_t skipped = first + encoded - encoded_;
  std::memcpy(values.data() + encoded, from.data() + exact_offset() + skipped * sizeof(float),
              (values.size() - encoded) * sizeof(float));
}

}  // namespace maestro
