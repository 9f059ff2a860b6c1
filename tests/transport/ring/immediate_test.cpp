// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/immediate.hpp"

#include <gtest/gtest.h>

#include <random>

namespace maestro {
namespace {

TEST(Immediate, every_part_survives_the_trip_at_its_limits) {
  for (std::uint32_t edge : {0u, 1u, 511u, 1023u}) {
    for (std::uint32_t slot : {0u, 1u, 31u, 63u}) {
      for (std::uint16_t sequence : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{0x8000}, std::uint16_t{65535}}) {
        const Immediate immediate{EdgeId(edge), slot, sequence};
        EXPECT_EQ(unpack_immediate(pack(immediate)), immediate);
      }
    }
  }
}

TEST(Immediate, the_bits_lie_where_the_protocol_says) {
  EXPECT_EQ(pack({EdgeId(1), 0, 0}), 1u << 22);
  EXPECT_EQ(pack({EdgeId(0), 1, 0}), 1u << 16);
  EXPECT_EQ(pack({EdgeId(1023), 63, 65535}), 0xffffffffu);
}

TEST(Immediate, a_wrapped_sequence_is_found_again_near_its_window) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 10000; ++round) {
    const std::uint64_t seq = 40000 + random() % (std::uint64_t{1} << 40);
    const std::uint64_t near = seq - 32000 + random() % 64000;
    ASSERT_EQ(unwrap_sequence(wrap_sequence(seq), near), seq) << "near " << near;
  }
  EXPECT_EQ(unwrap_sequence(5, 0), 5u);
  EXPECT_EQ(unwrap_sequence(65535, 65536), 65535u);
}

TEST(Immediate, a_sequence_before_the_first_one_becomes_one_far_ahead) {
  EXPECT_EQ(unwrap_sequence(65535, 0), 65535u);
}

TEST(Immediate, a_job_that_does_not_fit_the_bits_is_refused_with_the_limit) {
  EXPECT_TRUE(check_immediate_limits(1024, 64).ok());
  EXPECT_NE(check_immediate_limits(1025, 2).error().message.find("1024"), std::string::npos);
  EXPECT_NE(check_immediate_limits(1, 65).error().message.find("1..64"), std::string::npos);
  EXPECT_FALSE(check_immediate_limits(1, 0).ok());
}

}  // namespace
}  // namespace maestro
