// SPDX-License-Identifier: Apache-2.0
// The rows that ranks send to the owners of experts. Values are small integers: every expected value is exact.
#include "runtime/ops/expert_rows.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "runtime/collective/observed_group.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/dry_space.hpp"
#include "runtime/ops/observed_table.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro {
namespace {

using testing::on_ranks;
using testing::OwnedTensor;
using testing::rows_of;
using testing::Values;

constexpr std::int64_t columns = 3;

/// The experts of a micro-batch's rows.
struct Choice {
  const char* name;
  std::int64_t ranks, experts, rows, chosen;
  bool few = false;  ///< only the last two experts have rows
};
constexpr Choice choices[] = {{"even", 2, 4, 12, 2},
                              {"rows_that_ranks_do_not_share_evenly", 3, 6, 7, 3},
                              {"an_expert_a_rank", 4, 4, 9, 1},
                              {"ranks_without_rows", 4, 8, 2, 2},
                              {"experts_and_owners_without_rows", 2, 6, 8, 2, true},
                              {"nothing", 2, 4, 0, 2}};

std::vector<std::int32_t> experts_of(const Choice& choice) {
  std::mt19937 random(7);
  std::vector<std::int32_t> all;
  for (std::int64_t row = 0; row < choice.rows; ++row) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(choice.experts));
    std::iota(order.begin(), order.end(), 0);
    if (choice.few) order.erase(order.begin(), order.end() - 2);
    std::ranges::shuffle(order, random);
    all.insert(all.end(), order.begin(), order.begin() + choice.chosen);
  }
  return all;
}

OwnedTensor random_scores(const Choice& choice) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  Values scores(static_cast<std::size_t>(choice.rows * choice.experts));
  for (double& score : scores) score = normal(random);
  return {DType::f32, {choice.rows, choice.experts}, scores};
}

/// A rank with the routes of its rows.
struct Rank {
  Tape& tape;
  const Routes& routes;
  const ExpertRows& rows;
  RowRange own;    ///< rows of the micro-batch
  RowRange owned;  ///< experts
};

class ExpertRowsOverRanks : public ::testing::TestWithParam<Choice> {
 protected:
  [[nodiscard]] const Choice& choice() const { return GetParam(); }
  template <class Body>
  void on_every_rank(Body body) const {
    on_ranks(choice().ranks, [&](Communicator& group) {
      Arena arena;
      Tape tape(ops_, arena, DType::f32, true);
      const RowRange own = row_part(choice().rows, group.size(), group.rank());
      const OwnedTensor scores = rows_of(scores_, own);
      const auto chosen = std::span(experts_).subspan(static_cast<std::size_t>(own.first * choice().chosen),
                                                      static_cast<std::size_t>(own.count * choice().chosen));
      const Routes routes = route_to(tape, tape.input(scores, true), choice().chosen, {}, chosen);
      const ExpertRows rows(tape, routes, &group);
      body(Rank{tape, routes, rows, own, row_part(choice().experts, group.size(), group.rank())});
      tape.clear();
    });
  }
  /// Returns the routes to the experts in the order of expert and row.
  [[nodiscard]] std::vector<std::int64_t> routes_to(RowRange experts) const {
    std::vector<std::int64_t> routes;
    for (std::int64_t expert = experts.first; expert < experts.end(); ++expert) {
      for (std::size_t route = 0; route < experts_.size(); ++route) {
        if (experts_[route] == expert) routes.push_back(static_cast<std::int64_t>(route));
      }
    }
    return routes;
  }
  /// Returns (rows, columns) of different numbers.
  [[nodiscard]] static OwnedTensor numbered(RowRange rows) {
    Values numbers;
    for (std::int64_t row = rows.first; row < rows.end(); ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        numbers.push_back(static_cast<double>(10 * row + column));
    }
    return {DType::f32, {rows.count, columns}, numbers};
  }

  cpu::CpuOperatorTable ops_;
  std::vector<std::int32_t> experts_ = experts_of(choice());
  OwnedTensor scores_ = random_scores(choice());
};

TEST_P(ExpertRowsOverRanks, are_with_their_owners_in_the_order_of_experts_and_rows) {  // EM-1, MO-1, MO-2
  on_every_rank([&](const Rank& rank) {
    const std::vector<std::int64_t> expected = routes_to(rank.owned);
    ASSERT_EQ(rank.rows.count(), std::ssize(expected));
    ASSERT_EQ(rank.rows.offsets().elements(), rank.owned.count + 1);
    for (std::int64_t expert = 0; expert < rank.owned.count; ++expert) {
      const auto before = std::ssize(routes_to({rank.owned.first, expert}));
      EXPECT_EQ(rank.rows.offsets().span<std::int32_t>()[static_cast<std::size_t>(expert)], before);
    }
    const Block got = rank.rows.rows_of(numbered(rank.own));
    for (std::size_t at = 0; at < expected.size(); ++at) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto element = static_cast<std::int64_t>(at) * columns + column;
        EXPECT_EQ(got.tensor().data<float>()[element],
                  static_cast<float>(10 * (expected[at] / choice().chosen) + column));
      }
    }
  });
}

TEST_P(ExpertRowsOverRanks, return_to_their_sources_where_a_tokens_rows_are_added) {  // EM-1
  on_every_rank([&](const Rank& rank) {
    const OwnedTensor x = numbered(rank.own), y(DType::f32, {rank.own.count, columns});
    rank.rows.combine(rank.rows.rows_of(x), y);
    Values expected = x.values();
    for (double& value : expected) value *= static_cast<double>(choice().chosen);
    EXPECT_EQ(y.values(), expected);
  });
}

TEST_P(ExpertRowsOverRanks, have_the_weights_of_a_single_rank_and_return_their_gradients) {
  Arena arena;
  Tape single(ops_, arena, DType::f32, true);
  const Routes all = route_to(single, single.input(scores_, true), choice().chosen, {}, experts_);
  on_every_rank([&](const Rank& rank) {
    const auto first = std::ssize(routes_to({0, rank.owned.first}));
    const std::vector<std::int64_t> owned = routes_to(rank.owned);
    const Block gradients = rank.tape.scratch({rank.rows.count(), 1}, DType::f32);
    for (std::size_t at = 0; at < owned.size(); ++at) {
      const auto place = static_cast<std::int64_t>(at);
      EXPECT_EQ(rank.rows.weights().data<float>()[place], all.weights.value().data<float>()[first + place]);
      gradients.tensor().data<float>()[place] = static_cast<float>(owned[at]);
    }
    rank.rows.add_weight_gradient(gradients);
    std::vector<float> expected;
    for (const std::int64_t route : routes_to({0, choice().experts})) {
      if (rank.own.first <= route / choice().chosen && route / choice().chosen < rank.own.end()) {
        expected.push_back(static_cast<float>(route));
      }
    }
    const Tensor& found = rank.routes.weights.gradient();
    for (std::size_t at = 0; at < expected.size(); ++at) EXPECT_EQ(found.span<float>()[at], expected[at]);
  });
  single.clear();
}

INSTANTIATE_TEST_SUITE_P(choices, ExpertRowsOverRanks, ::testing::ValuesIn(choices),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ExpertRows, of_a_dry_pass_are_spread_evenly_and_state_the_bytes_that_travel) {  // EM-3
  constexpr std::int64_t tokens = 12, chosen = 2, experts = 8, ranks = 4, width = 16;
  constexpr std::int64_t routed = tokens * chosen;
  DrySpace space;
  const ObservedTable table(space, true, {.called = [](const OperatorCall&, double) {}});
  Arena arena(std::size_t{1} << 20, space);
  Tape tape(table, arena, DType::f32, true);
  std::vector<std::pair<std::string, std::int64_t>> calls;
  ObservedGroup group(ranks, 1, [&](const GroupCall& call, double) { calls.emplace_back(call.name, call.bytes); });
  const SpaceMemory scores(space, tokens * experts * sizeof(float)), x(space, tokens * width * sizeof(float));
  const Routes routes = route(tape, tape.input(Tensor(scores.data(), DType::f32, {tokens, experts}), true), chosen, {});
  const ExpertRows rows(tape, routes, &group);
  EXPECT_EQ(rows.count(), routed);
  EXPECT_EQ(rows.offsets().elements(), experts / ranks + 1);
  const Block sent = rows.rows_of(Tensor(x.data(), DType::f32, {tokens, width}));
  rows.combine(sent, Tensor(x.data(), DType::f32, {tokens, width}));
  const std::vector<std::pair<std::string, std::int64_t>> expected{{"all_gather", ranks * experts * 4},
                                                                   {"exchange", routed * 4},
                                                                   {"exchange", routed * width * 4},
                                                                   {"exchange", routed * width * 4}};
  EXPECT_EQ(calls, expected);
  tape.clear();
}

}  // namespace
}  // namespace maestro
