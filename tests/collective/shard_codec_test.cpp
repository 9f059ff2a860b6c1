// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/shard_codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/core/dtype.hpp"

namespace maestro {
namespace {

std::vector<float> decoded(const ShardCodec& codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec.bytes());
  codec.encode(values, bytes);
  std::vector<float> back(values.size());
  codec.decode(bytes, 0, back);
  return back;
}

std::vector<float> normal_values(std::size_t count, float scale) {
  std::mt19937 engine(7);
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

/// Returns all values of e4m3 that are not negative, by the definition of the format.
std::vector<float> all_e4m3() {
  std::vector<float> values;
  for (int exponent = 0; exponent < 16; ++exponent) {
    for (int mantissa = 0; mantissa < 8; ++mantissa) {
      if (exponent == 15 && mantissa == 7) continue;  // NaN
      values.push_back(exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7));
    }
  }
  return values;
}

TEST(ShardCodec, sizes_follow_the_formats) {  // WI-2
  EXPECT_EQ(ShardCodec(GradientWire::f32, 256, 16).bytes(), 4u * 272);
  EXPECT_EQ(ShardCodec(GradientWire::bf16, 256, 16).bytes(), 2u * 256 + 4 * 16);
  EXPECT_EQ(ShardCodec(GradientWire::bf16, 3, 1).bytes(), 8u + 4) << "floats are aligned";
  EXPECT_EQ(ShardCodec(GradientWire::e4m3, 256, 16).bytes(), 256u + 2 * 4 + 4 * 16);
  EXPECT_EQ(ShardCodec(GradientWire::e4m3, 129, 0).bytes(), 132u + 2 * 4);
  EXPECT_EQ(ShardCodec(GradientWire::e4m3, 0, 0).bytes(), 0u);
}

TEST(ShardCodec, every_e4m3_value_is_kept_where_the_largest_is_448) {
  std::vector<float> values = all_e4m3();
  ASSERT_EQ(values.size(), 127u);
  ASSERT_EQ(values.back(), 448);
  for (const float sign : {1.0f, -1.0f}) {
    for (float& value : values) value = std::abs(value) * sign;
    EXPECT_EQ(decoded({GradientWire::e4m3, values.size(), 0}, values), values);
  }
}

TEST(ShardCodec, e4m3_takes_the_nearest_value_and_of_two_the_even_one) {
  const std::vector<float> known = all_e4m3();
  std::vector<float> values, expected;
  for (std::size_t index = 0; index + 1 < known.size(); ++index) {
    const float middle = (known[index] + known[index + 1]) / 2;
    values.push_back(middle);
    expected.push_back(known[index % 2 == 0 ? index : index + 1]);
  }
  values.push_back(448);
  expected.push_back(448);
  EXPECT_EQ(decoded({GradientWire::e4m3, values.size(), 0}, values), expected);
  for (std::size_t index = 0; index + 1 < values.size(); ++index) {
    values[index] = std::nextafter(values[index], 1000.0f);
    expected[index] = known[index + 1];
  }
  EXPECT_EQ(decoded({GradientWire::e4m3, values.size(), 0}, values), expected);
}

TEST(ShardCodec, a_block_of_e4m3_has_a_scale_of_its_own) {
  std::vector<float> values = normal_values(300, 1);
  for (std::size_t index = 128; index < 256; ++index) values[index] *= 1e-20f;
  const std::vector<float> back = decoded({GradientWire::e4m3, 300, 0}, values);
  for (std::size_t index = 0; index < values.size(); ++index) {
    const float least = index / 128 == 1 ? 1e-22f : 1e-2f;
    ASSERT_NEAR(back[index], values[index], std::abs(values[index]) / 16 + least) << index;
  }
}

TEST(ShardCodec, bf16_is_rounded_to_the_nearest) {
  const std::vector<float> values = normal_values(200, 3);
  const std::vector<float> back = decoded({GradientWire::bf16, 200, 0}, values);
  for (std::size_t index = 0; index < values.size(); ++index) EXPECT_EQ(back[index], float(bfloat16(values[index])));
}

TEST(ShardCodec, elements_that_count_are_exact) {
  std::vector<float> values = normal_values(200, 1);
  for (std::size_t index = 130; index < 200; ++index) values[index] = static_cast<float>((1 << 24) - 1 - index);
  for (const GradientWire wire : {GradientWire::f32, GradientWire::bf16, GradientWire::e4m3}) {
    const std::vector<float> back = decoded({wire, 130, 70}, values);
    for (std::size_t index = 130; index < 200; ++index) EXPECT_EQ(back[index], values[index]);
  }
}

TEST(ShardCodec, a_range_decodes_as_the_whole_does) {
  const std::vector<float> values = normal_values(1000, 1);
  for (const GradientWire wire : {GradientWire::f32, GradientWire::bf16, GradientWire::e4m3}) {
    const ShardCodec codec(wire, 700, 300);
    std::vector<std::byte> bytes(codec.bytes());
    codec.encode(values, bytes);
    const std::vector<float> whole = decoded(codec, values);
    for (const std::size_t first : {std::size_t{0}, std::size_t{128}, std::size_t{640}, std::size_t{768}}) {
      std::vector<float> part(std::min<std::size_t>(200, values.size() - first));
      codec.decode(bytes, first, part);
      EXPECT_EQ(part, std::vector<float>(whole.begin() + first, whole.begin() + first + part.size())) << first;
    }
  }
}

TEST(ShardCodec, zeros_and_the_smallest_floats_stay_finite) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(decoded({GradientWire::e4m3, 3, 0}, {0, -0.0f, 0}), (std::vector<float>{0, 0, 0}));
  for (const float value : decoded({GradientWire::e4m3, 2, 0}, {denormal, std::numeric_limits<float>::min()})) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_LE(value, std::numeric_limits<float>::min());
  }
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(decoded({GradientWire::e4m3, 1, 0}, {largest}).front(), largest);
}

TEST(ShardCodec, a_value_that_is_not_finite_is_not_hidden) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = normal_values(256, 1);
    values[130] = bad;
    const std::vector<float> small = decoded({GradientWire::e4m3, 256, 0}, values);
    EXPECT_TRUE(std::isnan(small[130]));
    EXPECT_TRUE(std::isfinite(small[127])) << "the block before";
    EXPECT_FALSE(std::isfinite(decoded({GradientWire::bf16, 256, 0}, values)[130]));
  }
}

TEST(ShardCodec, the_error_is_what_encoding_changed) {
  const std::vector<float> values = normal_values(1 << 16, 1);
  for (const auto& [wire, low, high] :
       {std::tuple(GradientWire::bf16, 1e-3, 2.5e-3), std::tuple(GradientWire::e4m3, 1.5e-2, 4e-2)}) {
    const ShardCodec codec(wire, values.size(), 0);
    std::vector<std::byte> bytes(codec.bytes());
    const WireError error = codec.encode(values, bytes);
    std::vector<float> back(values.size());
    codec.decode(bytes, 0, back);
    double squares = 0, of_values = 0;
    for (std::size_t index = 0; index < values.size(); ++index) {
      squares += std::pow(static_cast<double>(back[index]) - values[index], 2);
      of_values += static_cast<double>(values[index]) * values[index];
    }
    EXPECT_NEAR(error.error, squares, squares * 1e-9);
    EXPECT_NEAR(error.values, of_values, of_values * 1e-9);
    EXPECT_GT(std::sqrt(error.error / error.values), low);
    EXPECT_LT(std::sqrt(error.error / error.values), high);
  }
  std::vector<std::byte> bytes(4 * values.size());
  EXPECT_EQ(ShardCodec(GradientWire::f32, values.size(), 0).encode(values, bytes).values, 0);
}

}  // namespace
}  // namespace maestro
