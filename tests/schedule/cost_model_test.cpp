// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/cost_model.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

const std::vector<SampleRef> two{{SampleId(1), 10}, {SampleId(2), 30}};

CostModel model() {
  return CostModel(
      [](SectionId section, const SampleRef& sample) {
        const double work = static_cast<double>(sample.tokens) * (section.value() + 1);
        return PassCost{work, 2 * work};
      },
      10);
}

TEST(CostModel, before_any_measurement_all_sections_share_one_rate) {  // CS-1
  const CostModel costs = model();
  EXPECT_DOUBLE_EQ(costs.of(SectionId(0), two).forward, 4);
  EXPECT_DOUBLE_EQ(costs.of(SectionId(0), two).backward, 8);
  EXPECT_DOUBLE_EQ(costs.of(SectionId(1), two).forward, 8);
}

TEST(CostModel, a_measured_pass_sets_the_rate_of_its_section_and_direction_and_later_ones_move_it) {
  CostModel costs = model();
  costs.measured({SectionId(1), true, two, 320});
  EXPECT_DOUBLE_EQ(costs.of(SectionId(1), two).backward, 320);
  EXPECT_DOUBLE_EQ(costs.of(SectionId(1), two).forward, 8);
  EXPECT_DOUBLE_EQ(costs.of(SectionId(0), two).backward, 8);
  costs.measured({SectionId(1), true, two, 400});
  EXPECT_DOUBLE_EQ(costs.of(SectionId(1), two).backward, 330);
}

TEST(CostModel, passes_of_different_size_give_a_constant_per_pass) {
  CostModel costs = model();
  const std::vector<SampleRef> one{{SampleId(3), 20}};
  costs.measured({SectionId(1), false, two, 5 + 80});  // 1 ms per unit
  costs.measured({SectionId(1), false, one, 5 + 40});
  const std::vector<SampleRef> small{{SampleId(4), 1}};
  EXPECT_NEAR(costs.of(SectionId(1), small).forward, 5 + 2, 1e-9);
  EXPECT_EQ(costs.of(SectionId(1), {}).forward, 0);
}

TEST(CostModel, an_edge_takes_the_longer_of_its_two_directions) {
  CostModel costs;
  EXPECT_EQ(costs.transfer_ms(EdgeId(0)), 0);
  costs.transferred({{EdgeId(0), Direction::forward}, 4});
  costs.transferred({{EdgeId(0), Direction::gradient}, 6});
  costs.transferred({{EdgeId(1), Direction::forward}, 5});
  EXPECT_DOUBLE_EQ(costs.transfer_ms(EdgeId(0)), 6);
  EXPECT_DOUBLE_EQ(costs.transfer_ms(EdgeId(1)), 5);
}

TEST(CostModel, the_planned_time_of_an_edge_follows_large_changes_only) {  // CS-2
  CostModel costs;
  const Channel channel{EdgeId(0), Direction::forward};
  for (const double ms : {0.0, 0.02, 0.09, 0.0, 0.1}) costs.transferred({channel, ms});
  EXPECT_EQ(costs.transfer_ms(EdgeId(0)), 0) << "jitter of a hand-over";
  costs = CostModel();
  costs.transferred({channel, 8});
  for (const double ms : {8.5, 7.5, 9.0, 7.0, 9.5}) {
    costs.transferred({channel, ms});
    EXPECT_DOUBLE_EQ(costs.transfer_ms(EdgeId(0)), 8) << ms;
  }
  for (int step = 0; step < 60; ++step) costs.transferred({channel, 20});
  EXPECT_NEAR(costs.transfer_ms(EdgeId(0)), 20, 20.0 / 4);
  for (int step = 0; step < 60; ++step) costs.transferred({channel, 0});
  EXPECT_LE(costs.transfer_ms(EdgeId(0)), 0.1);
}

TEST(CostModel, a_pass_that_took_no_time_or_had_no_work_teaches_nothing) {
  CostModel costs = model();
  costs.measured({SectionId(0), false, two, 0});
  costs.measured({SectionId(0), false, {}, 5});
  EXPECT_DOUBLE_EQ(costs.of(SectionId(0), two).forward, 4);
  costs.measured({SectionId(0), false, two, 40});
  costs.measured({SectionId(0), false, two, 0});
  EXPECT_DOUBLE_EQ(costs.of(SectionId(0), two).forward, 40);
}

}  // namespace
}  // namespace maestro
