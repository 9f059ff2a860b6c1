// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/length_distribution.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

constexpr std::int64_t k = 1024;

LengthDistribution published(const std::string& name, std::int64_t longest = 0) {
  for (const auto& [known, points] : published_lengths()) {
    if (known == name) return {points, longest};
  }
  throw std::invalid_argument(name);
}

TEST(LengthDistribution, points_are_met_and_logarithms_interpolated_between_them) {  // LQ-1
  const LengthDistribution lengths({{100, 1}, {400, 0.25}, {1000, 0.1}}, 0);
  EXPECT_EQ(lengths.at(1), 100);
  EXPECT_EQ(lengths.at(0.5), 200);
  EXPECT_EQ(lengths.at(0.25), 400);
  EXPECT_LT(lengths.at(0.2500001), 400);
  EXPECT_EQ(lengths.at(0.1), 1000);
  EXPECT_EQ(lengths.at(1e-9), 1000);
  EXPECT_EQ(lengths.least(), 100);
  EXPECT_EQ(lengths.most(), 1000);
}

TEST(LengthDistribution, longer_lengths_are_cut) {
  const LengthDistribution lengths = published("github", 4096);
  EXPECT_EQ(lengths.at(1e-6), 4096);
  EXPECT_EQ(lengths.most(), 4096);
  EXPECT_EQ(lengths.at(0.62), 512);
  EXPECT_NE(lengths.text(), published("github").text());
}

TEST(LengthDistribution, points_out_of_order_are_refused) {
  for (const LengthPoints& points : {LengthPoints{}, LengthPoints{{64, 0.9}}, LengthPoints{{64, 1}, {64, 0.5}},
                                     LengthPoints{{64, 1}, {65, 1}}, LengthPoints{{64, 1}, {65, 0}}}) {
    EXPECT_THROW(LengthDistribution(points, 0), JobError);
  }
  EXPECT_THROW(LengthDistribution({{1, 1}}, 0), JobError);
}

struct Drawn {
  double tokens = 0;
  std::map<std::int64_t, double> tokens_from;   // tokens in samples at least this long
  std::map<std::int64_t, double> samples_from;  // number of samples at least this long
};

Drawn draw(const LengthDistribution& lengths, int count) {
  Drawn drawn;
  Random random(1, 2);
  for (int at = 0; at < count; ++at) {
    // A grid with a random point in each cell, so that rare lengths are drawn at the right rate.
    const double share = (at + 1 - random.uniform()) / count;
    const std::int64_t length = lengths.at(share);
    drawn.tokens += static_cast<double>(length);
    for (const std::int64_t from : {4 * k + 1, 8 * k, 64 * k, 128 * k, 256 * k, 2048 * k}) {
      if (length < from) continue;
      drawn.tokens_from[from] += static_cast<double>(length);
      drawn.samples_from[from] += 1;
    }
  }
  for (auto& [from, tokens] : drawn.tokens_from) tokens /= drawn.tokens;
  for (auto& [from, samples] : drawn.samples_from) samples /= count;
  drawn.tokens /= count;
  return drawn;
}

TEST(LengthDistribution, the_published_sets_have_their_shares_and_means) {  // LQ-1
  constexpr int draws = 1'000'000;
  // Integrals of the interpolated functions; published figures in brackets.
  const Drawn byted = draw(published("byted"), draws);
  EXPECT_NEAR(1 - byted.samples_from.at(4 * k + 1), 0.80, 0.001);  // [0.80]
  EXPECT_NEAR(byted.tokens_from.at(128 * k), 0.4435, 0.002);       // [0.443]
  EXPECT_NEAR(byted.tokens_from.at(256 * k), 0.3566, 0.002);       // [0.37]
  EXPECT_NEAR(byted.tokens_from.at(2048 * k), 0.1198, 0.002);      // [0.121]
  EXPECT_NEAR(byted.tokens, 8755, 30);
  const Drawn github = draw(published("github"), draws);
  EXPECT_NEAR(github.tokens_from.at(128 * k), 0.1616, 0.002);  // [0.162]
  EXPECT_NEAR(github.tokens_from.at(256 * k), 0.0972, 0.002);  // [0.098]
  EXPECT_NEAR(github.tokens, 2805, 10);
  const Drawn commoncrawl = draw(published("commoncrawl"), draws);
  EXPECT_NEAR(commoncrawl.samples_from.at(128 * k), 0.0055, 1e-5);  // [3 of 512]
  EXPECT_NEAR(commoncrawl.tokens, 4823, 15);
  const Drawn wikipedia = draw(published("wikipedia"), draws);
  EXPECT_GT(1 - wikipedia.samples_from.at(8 * k), 0.96);  // [over 0.96]
  EXPECT_NEAR(wikipedia.tokens, 1613, 5);
}

TEST(LengthDistribution, independent_draws_have_the_shares_of_the_points) {  // LQ-1
  for (const auto& [name, points] : published_lengths()) {
    const LengthDistribution lengths(points, 0);
    constexpr int draws = 200'000;
    std::vector<int> reached(points.size());
    for (int sample = 0; sample < draws; ++sample) {
      const std::int64_t length = lengths.at(1 - Random(5, static_cast<std::uint64_t>(sample)).uniform());
      for (std::size_t at = 0; at < points.size(); ++at) reached[at] += length >= points[at].length ? 1 : 0;
    }
    for (std::size_t at = 0; at < points.size(); ++at) {
      const double expected = points[at].share * draws;
      EXPECT_NEAR(reached[at], expected, 4 * std::sqrt(expected) + 1) << name << ' ' << points[at].length;
    }
  }
}

}  // namespace
}  // namespace maestro
