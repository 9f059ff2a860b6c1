// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/norm_gate.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace maestro {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

SpikeRules rules() {
  SpikeRules made;
  made.window = 32;
  return made;
}

/// Returns a gate that has seen usual norms: 1 for the encoder, 100 for the decoder.
NormGate used_gate() {
  NormGate gate(rules());
  for (int step = 0; step < 8; ++step) EXPECT_FALSE(gate.judge({{"decoder", 100}, {"encoder", 1}}));
  return gate;
}

TEST(NormGate, a_norm_is_huge_beside_those_of_its_own_section) {  // NG-2
  NormGate gate = used_gate();
  EXPECT_FALSE(gate.judge({{"decoder", 1000}, {"encoder", 10}})) << "ten times the median is not more than that";
  const auto refused = gate.judge({{"decoder", 100}, {"encoder", 10.1}});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->section, "encoder");
  EXPECT_EQ(refused->norm, 10.1);
  EXPECT_EQ(refused->usual, 1);
}

TEST(NormGate, nothing_is_huge_before_there_are_usual_norms) {  // NG-2
  NormGate gate(rules());
  for (int step = 0; step < 7; ++step) EXPECT_FALSE(gate.judge({{"decoder", 1}}));
  EXPECT_FALSE(gate.judge({{"decoder", 1e9}}));
  EXPECT_TRUE(gate.judge({{"decoder", 1e9}}));
}

TEST(NormGate, a_norm_that_is_not_finite_is_refused_always_and_named_first) {
  NormGate gate(rules());
  EXPECT_TRUE(gate.judge({{"decoder", infinite}}));
  EXPECT_TRUE(gate.judge({{"decoder", std::numeric_limits<double>::quiet_NaN()}}));
  NormGate used = used_gate();
  const auto refused = used.judge({{"decoder", 1e6}, {"encoder", -infinite}});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->section, "encoder");
}

TEST(NormGate, a_level_that_stays_becomes_usual) {  // NG-2
  NormGate gate = used_gate();
  std::uint64_t refused = 0;
  while (gate.judge({{"decoder", 5000}, {"encoder", 1}})) ++refused;
  EXPECT_EQ(refused, 8U) << "until the new level is the upper median";
  EXPECT_EQ(gate.refused_in_a_row(), 0U);
}

TEST(NormGate, steps_in_a_row_are_counted) {
  NormGate gate = used_gate();
  for (std::uint64_t row = 1; row <= 3; ++row) {
    EXPECT_TRUE(gate.judge({{"decoder", infinite}}));
    EXPECT_EQ(gate.refused_in_a_row(), row);
  }
  EXPECT_FALSE(gate.judge({{"decoder", 100}}));
  EXPECT_EQ(gate.refused_in_a_row(), 0U);
}

TEST(NormGate, a_run_that_goes_on_decides_the_same) {  // NG-1
  std::mt19937 random(7);
  std::lognormal_distribution<double> norms(0, 1.5);
  NormGate whole(rules());
  std::vector<std::pair<SectionNorms, bool>> record;
  for (int step = 0; step < 200; ++step) {
    SectionNorms of_step{{"decoder", norms(random)}, {"encoder", step % 31 == 0 ? infinite : norms(random)}};
    const bool refused = whole.judge(of_step).has_value();
    record.emplace_back(std::move(of_step), refused);
  }
  NormGate resumed(rules());
  for (int step = 0; step < 90; ++step) resumed.learn(record[step].first, record[step].second);
  for (int step = 90; step < 200; ++step) {
    EXPECT_EQ(resumed.judge(record[step].first).has_value(), record[step].second) << "step " << step;
  }
  EXPECT_EQ(resumed.refused_in_a_row(), whole.refused_in_a_row());
}

}  // namespace
}  // namespace maestro
