// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/stage_cut.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace maestro {
namespace {

using Cut = std::vector<std::int64_t>;

double dearest(const std::vector<double>& layers, double before, double after, const Cut& cut) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t stage = 0; stage < cut.size(); ++stage) {
    double sum = (stage == 0 ? before : 0) + (stage + 1 == cut.size() ? after : 0);
    for (std::int64_t layer = 0; layer < cut[stage]; ++layer) sum += layers[at++];
    worst = std::max(worst, sum);
  }
  return worst;
}

void every_cut(std::int64_t layers, std::int64_t stages, Cut& cut, const std::function<void(const Cut&)>& use) {
  if (stages == 1) {
    cut.push_back(layers);
    use(cut);
    cut.pop_back();
    return;
  }
  for (std::int64_t own = 1; own <= layers - stages + 1; ++own) {
    cut.push_back(own);
    every_cut(layers - own, stages - 1, cut, use);
    cut.pop_back();
  }
}

TEST(StageCut, equal_layers_are_cut_evenly_and_the_first_stage_has_the_fewest) {  // TC-1, TC-2
  EXPECT_EQ(cut_stages(std::vector<double>(8, 1.0), 0, 0, 4), (Cut{2, 2, 2, 2}));
  EXPECT_EQ(cut_stages(std::vector<double>(4, 1.0), 0, 0, 4), (Cut{1, 1, 1, 1}));
  EXPECT_EQ(cut_stages(std::vector<double>(5, 1.0), 0, 0, 1), (Cut{5}));
  EXPECT_EQ(cut_stages(std::vector<double>(5, 1.0), 0, 0, 2), (Cut{2, 3}));
}

TEST(StageCut, an_output_layer_as_dear_as_two_layers_takes_the_place_of_two) {
  EXPECT_EQ(cut_stages(std::vector<double>(8, 1.0), 0, 2, 2), (Cut{5, 3}));
}

TEST(StageCut, no_cut_has_a_cheaper_dearest_stage) {  // TC-2
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t count = 1 + static_cast<std::int64_t>(random() % 9);
    const std::int64_t stages = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    std::vector<double> layers;
    for (std::int64_t at = 0; at < count; ++at) layers.push_back(static_cast<double>(1 + random() % 9));
    const double before = static_cast<double>(random() % 6), after = static_cast<double>(random() % 20);
    const Cut found = cut_stages(layers, before, after, stages);
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), stages);
    ASSERT_EQ(std::accumulate(found.begin(), found.end(), std::int64_t{0}), count);
    ASSERT_GE(*std::ranges::min_element(found), 1);
    double best = 1e9;
    Cut cut;
    every_cut(count, stages, cut,
              [&](const Cut& other) { best = std::min(best, dearest(layers, before, after, other)); });
    EXPECT_EQ(dearest(layers, before, after, found), best);
  }
}

}  // namespace
}  // namespace maestro
