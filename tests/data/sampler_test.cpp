// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

std::vector<std::uint64_t> epoch_of(const Sampler& sampler, std::uint64_t epoch) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t at = 0; at < sampler.samples(); ++at) {
    order.push_back(sampler.at(epoch * sampler.samples() + at).value());
  }
  return order;
}

TEST(Sampler, visits_every_sample_exactly_once_per_epoch) {  // SM-1
  Random random(42);
  std::vector<std::uint64_t> sizes{1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 1000, 4096, 10007};
  for (int extra = 0; extra < 20; ++extra) sizes.push_back(1 + random.below(3000));
  for (const std::uint64_t samples : sizes) {
    const Sampler sampler(random.next(), samples);
    for (const std::uint64_t epoch : {0u, 1u, 7u}) {
      std::vector<bool> seen(samples);
      for (const std::uint64_t id : epoch_of(sampler, epoch)) {
        ASSERT_LT(id, samples);
        ASSERT_FALSE(seen[id]) << "sample " << id << " twice in epoch " << epoch << " of " << samples;
        seen[id] = true;
      }
    }
  }
}

TEST(Sampler, gives_the_recorded_order_on_every_platform) {  // SM-2
  const Sampler sampler(1, 10);                              // recorded from an independent implementation in Python
  EXPECT_EQ(epoch_of(sampler, 0), (std::vector<std::uint64_t>{0, 1, 6, 8, 2, 4, 3, 9, 7, 5}));
  EXPECT_EQ(epoch_of(sampler, 1), (std::vector<std::uint64_t>{3, 4, 2, 5, 7, 0, 1, 8, 6, 9}));
}

TEST(Sampler, resumes_at_a_position_without_any_other_state) {  // SM-2
  const Sampler first(9, 100);
  const Sampler resumed(9, 100);
  for (std::uint64_t position = 250; position < 260; ++position) EXPECT_EQ(first.at(position), resumed.at(position));
  EXPECT_EQ(first.epoch(250), 2u);
}

TEST(Sampler, orders_differ_between_epochs_and_seeds) {
  const Sampler sampler(9, 100);
  EXPECT_NE(epoch_of(sampler, 0), epoch_of(sampler, 1));
  EXPECT_NE(epoch_of(sampler, 0), epoch_of(Sampler(10, 100), 0));
}

TEST(Sampler, every_order_of_a_small_corpus_is_about_equally_likely) {
  constexpr int epochs = 24000;
  const Sampler sampler(77, 5);
  std::map<std::vector<std::uint64_t>, int> counts;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) ++counts[epoch_of(sampler, epoch)];
  EXPECT_EQ(counts.size(), 120u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 200.0) * (count - 200.0) / 200.0;
  // With 119 degrees of freedom: mean 119, standard deviation 15.4; five standard deviations above the mean.
  EXPECT_LT(chi_square, 196);
}

TEST(Sampler, works_for_a_corpus_no_memory_could_permute) {
  const Sampler sampler(3, (std::uint64_t{1} << 40) + 1);
  EXPECT_LT(sampler.at(123).value(), sampler.samples());
  EXPECT_NE(sampler.at(123), sampler.at(124));
}

TEST(Sampler, refuses_an_empty_corpus) {
  EXPECT_THROW(Sampler(1, 0), JobError);
}

TEST(Sampler, weights_near_the_largest_number_share_out_as_their_ratios) {  // SM-3
  EXPECT_EQ(shares_of({{9, 1e308}, {9, 1.5e308}, {9, 1}}), (std::vector<std::uint64_t>{410, 614, 0}));
  EXPECT_EQ(shares_of({{9, 3}, {9, 1}}), (std::vector<std::uint64_t>{768, 256}));
}

TEST(Sampler, a_mixture_gives_each_source_its_share_of_each_block_and_its_own_permutation) {  // SM-3
  const std::vector<SampleSource> sources{{100, 3.0}, {1000, 1.0}, {7, 0.5}};
  const Sampler sampler(4, sources);
  const Sampler alone(4, 100);
  std::vector<std::vector<std::uint64_t>> visits(3);
  for (std::uint64_t position = 0; position < 4 * 1024; ++position) {
    const std::uint64_t sample = sampler.at(position).value();
    visits[sample < 100 ? 0 : sample < 1100 ? 1 : 2].push_back(sample);
    if ((position + 1) % 1024 != 0) continue;
    const std::uint64_t blocks = (position + 1) / 1024;
    EXPECT_EQ(visits[0].size(), 683 * blocks);  // 682.67, 227.56, 113.78
    EXPECT_EQ(visits[1].size(), 227 * blocks);
    EXPECT_EQ(visits[2].size(), 114 * blocks);
  }
  // Within a block, a source's visits have any order; an epoch of 100 is not a multiple of a block.
  std::vector<std::uint64_t> counts(100);
  for (std::size_t at = 0; at < 683; ++at) ++counts[visits[0][at]];
  for (const std::uint64_t count : counts) EXPECT_TRUE(count == 6 || count == 7) << count;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t position = 0; position < 683; ++position) expected.push_back(alone.at(position).value());
  std::vector<std::uint64_t> seen(visits[0].begin(), visits[0].begin() + 683);
  std::ranges::sort(expected);
  std::ranges::sort(seen);
  EXPECT_EQ(seen, expected);
}

TEST(Sampler, a_source_without_a_place_in_a_block_is_refused) {
  EXPECT_THROW(Sampler(1, {{10, 1.0}, {10, 1e-6}}), JobError);
  EXPECT_THROW(Sampler(1, {{10, 1.0}, {0, 1.0}}), JobError);
}

}  // namespace
}  // namespace maestro
