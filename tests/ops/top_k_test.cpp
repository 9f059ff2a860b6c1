// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/top_k.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/ops/owned_tensor.hpp"

namespace maestro::cpu {
namespace {

using testing::OwnedTensor;
using testing::Values;

struct Best {
  Values values;
  Values indices;
};

Best compute(Isa isa, const Values& logits, std::int64_t rows, std::int64_t k, std::int64_t among = 0) {
  const auto columns = static_cast<std::int64_t>(logits.size()) / rows;
  const OwnedTensor in(DType::f32, Shape{rows, columns}, logits);
  const OwnedTensor values(DType::f32, Shape{rows, k});
  const OwnedTensor indices(DType::i32, Shape{rows, k});
  top_k(isa, in, values, indices, among);
  return {values.values(), indices.values()};
}

/// Returns the result of a stable sort of all values.
Best sorted(const Values& logits, std::int64_t rows, std::int64_t k) {
  const std::size_t columns = logits.size() / static_cast<std::size_t>(rows);
  Best best;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    std::vector<std::size_t> order(columns);
    std::iota(order.begin(), order.end(), row * columns);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    for (std::int64_t i = 0; i < k; ++i) {
      best.values.push_back(logits[order[static_cast<std::size_t>(i)]]);
      best.indices.push_back(static_cast<double>(order[static_cast<std::size_t>(i)] - row * columns));
    }
  }
  return best;
}

class TopKOnIsa : public ::testing::TestWithParam<Isa> {};

TEST_P(TopKOnIsa, agrees_with_a_full_sort) {
  std::mt19937 generator(3);
  for (const std::int64_t columns : {1, 2, 15, 64, 65, 777, 4096}) {
    const std::int64_t some[] = {1, 2, 7, 64, columns};
    for (const std::int64_t k : some) {
      if (k > columns) continue;
      SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(columns));
      const Values logits = testing::exact_normals(generator, 3 * columns);  // bf16 values: many ties
      const Best got = compute(GetParam(), logits, 3, k);
      const Best wanted = sorted(logits, 3, k);
      EXPECT_EQ(got.values, wanted.values);
      EXPECT_EQ(got.indices, wanted.indices);
    }
  }
}

TEST_P(TopKOnIsa, equal_values_come_in_order_of_their_index) {
  const Best got = compute(GetParam(), Values(200, -1.5), 1, 5);
  EXPECT_EQ(got.indices, (Values{0, 1, 2, 3, 4}));
  Values late(200, 0.0);
  late[199] = late[150] = 1;
  EXPECT_EQ(compute(GetParam(), late, 1, 3).indices, (Values{150, 199, 0}));
}

TEST_P(TopKOnIsa, rising_rows_and_infinities_are_ordered) {
  Values rising(300);
  std::iota(rising.begin(), rising.end(), -150.0);
  rising[7] = std::numeric_limits<double>::infinity();
  rising[299] = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(compute(GetParam(), rising, 1, 4).indices, (Values{7, 298, 297, 296}));
  const Values nowhere(40, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(compute(GetParam(), nowhere, 1, 3).indices, (Values{0, 1, 2}));
}

TEST_P(TopKOnIsa, a_nan_is_shown_rather_than_hidden) {
  Values logits(100, 0.0);
  logits[90] = std::numeric_limits<double>::quiet_NaN();
  logits[50] = 5;
  const Best got = compute(GetParam(), logits, 1, 3);
  EXPECT_TRUE(std::isnan(got.values[0]));
  EXPECT_EQ(got.indices, (Values{90, 50, 0}));
}

TEST_P(TopKOnIsa, columns_behind_those_that_are_asked_for_are_not_looked_at) {
  Values logits(2 * 50, -3.0);
  for (std::size_t row = 0; row < 2; ++row) {
    std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(row * 50 + 40), 10, 7.0);
    logits[row * 50 + 11] = 1;
  }
  const Best got = compute(GetParam(), logits, 2, 3, 40);
  EXPECT_EQ(got.values, (Values{1, -3, -3, 1, -3, -3}));
  EXPECT_EQ(got.indices, (Values{11, 0, 1, 11, 0, 1}));
}

INSTANTIATE_TEST_SUITE_P(TopK, TopKOnIsa, ::testing::ValuesIn(supported_isas()),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace maestro::cpu
