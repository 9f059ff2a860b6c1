// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "runtime/core/dtype.hpp"

namespace maestro {
namespace {

float round_trip(float value) {
  return static_cast<float>(bfloat16(value));
}

TEST(Bfloat16, every_value_survives_the_way_through_f32) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    bfloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(round_trip(wide)));
    } else {
      EXPECT_EQ(bfloat16(wide).bits, bits);
    }
  }
}

TEST(Bfloat16, halves_round_to_the_even_neighbour) {
  EXPECT_EQ(round_trip(1.0F + 1.0F / 256), 1.0F);               // between 1 and 1 + 1/128
  EXPECT_EQ(round_trip(1.0F + 3.0F / 256), 1.0F + 4.0F / 256);  // between 1 + 1/128 and 1 + 2/128
  EXPECT_EQ(round_trip(1.0F + 1.0F / 256 + 1e-6F), 1.0F + 1.0F / 128);
  EXPECT_EQ(round_trip(-1.0F - 1.0F / 256), -1.0F);
}

TEST(Bfloat16, the_nearest_of_its_neighbours_is_taken) {
  for (float value = 1e-30F; value < 1e30F; value *= 1.0137F) {
    const bfloat16 rounded(value);
    bfloat16 below;
    bfloat16 above;
    below.bits = static_cast<std::uint16_t>(rounded.bits - 1);
    above.bits = static_cast<std::uint16_t>(rounded.bits + 1);
    const double error = std::abs(double{value} - static_cast<float>(rounded));
    EXPECT_LE(error, std::abs(double{value} - static_cast<float>(below))) << value;
    EXPECT_LE(error, std::abs(double{value} - static_cast<float>(above))) << value;
  }
}

TEST(Bfloat16, infinities_and_nans_keep_their_kind) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round_trip(infinity), infinity);
  EXPECT_EQ(round_trip(-infinity), -infinity);
  EXPECT_EQ(round_trip(std::numeric_limits<float>::max()), infinity);
  // A NaN whose set bits are all in the truncated half must not become an infinity.
  EXPECT_TRUE(std::isnan(round_trip(std::bit_cast<float>(0x7f800001U))));
  EXPECT_TRUE(std::isnan(round_trip(std::bit_cast<float>(0xff800001U))));
}

TEST(Bfloat16, zeros_keep_their_sign) {
  EXPECT_EQ(bfloat16(0.0F).bits, 0x0000);
  EXPECT_EQ(bfloat16(-0.0F).bits, 0x8000);
}

}  // namespace
}  // namespace maestro
