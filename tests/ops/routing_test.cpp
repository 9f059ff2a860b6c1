// SPDX-License-Identifier: Apache-2.0
// Routers, and the order of routes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro {
namespace {

using testing::OwnedTensor;
using testing::Values;

/// A router in double precision, written from RouterKind.
struct Router {
  RouteOptions options;
  std::int64_t experts = 0;
  std::int64_t chosen = 0;
  Values bias;

  [[nodiscard]] double score(const Values& z, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    if (options.kind != RouterKind::sigmoid) return z[at];
    return 1 / (1 + std::exp(-z[at])) + (bias.empty() ? 0 : bias[at]);
  }

  [[nodiscard]] std::vector<std::int64_t> best(const Values& z) const {
    const std::int64_t size = experts / options.groups;
    std::vector<std::int64_t> groups(static_cast<std::size_t>(options.groups));
    std::iota(groups.begin(), groups.end(), std::int64_t{0});
    const auto group_score = [&](std::int64_t group) {
      Values all;
      for (std::int64_t i = group * size; i < (group + 1) * size; ++i) all.push_back(score(z, i));
      std::ranges::sort(all, std::greater());
      return options.kind == RouterKind::sigmoid && size > 1 ? all[0] + all[1] : all[0];
    };
    std::ranges::stable_sort(groups, std::greater(), group_score);
    groups.resize(static_cast<std::size_t>(options.top_groups));
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < experts; ++i) {
      if (std::ranges::find(groups, i / size) != groups.end()) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::greater(), [&](std::int64_t i) { return score(z, i); });
    order.resize(static_cast<std::size_t>(chosen));
    return order;
  }

  [[nodiscard]] Values weights(const Values& z, const std::vector<std::int64_t>& of) const {
    const auto at = [&](std::int64_t i) { return z[static_cast<std::size_t>(i)]; };
    double sum = options.kind == RouterKind::sigmoid ? options.divisor_addend : 0;
    if (options.kind == RouterKind::softmax) {
      for (const double value : z) sum += std::exp(value);
    }
    Values out;
    for (const std::int64_t i : of) {
      out.push_back(options.kind == RouterKind::sigmoid ? 1 / (1 + std::exp(-at(i))) : std::exp(at(i)));
      if (options.kind != RouterKind::softmax) sum += out.back();
    }
    const bool divided = options.kind != RouterKind::sigmoid || options.divided;
    for (double& weight : out) weight *= options.scale / (divided ? sum : 1);
    return out;
  }
};

std::vector<Router> routers() {
  std::vector<Router> all;
  for (const RouterKind kind : {RouterKind::softmax, RouterKind::chosen, RouterKind::sigmoid}) {
    all.push_back({{.kind = kind, .scale = 1.5}, 8, 2, {}});
    all.push_back({{.kind = kind}, 5, 5, {}});
    all.push_back({{.kind = kind}, 1, 1, {}});
    all.push_back({{.kind = kind, .divided = true, .groups = 4, .top_groups = 2}, 12, 3, {}});
  }
  all.push_back({{.kind = RouterKind::sigmoid, .scale = 2.5, .divided = true}, 6, 3, {0.5, -1, 0, 0.25, 2, -0.5}});
  return all;
}

class Routing : public ::testing::TestWithParam<testing::Backend> {
 protected:
  struct Result {
    OwnedTensor logits, experts, weights;
  };
  [[nodiscard]] Result routed(const Router& router, std::int64_t rows, const Values& logits) const {
    Result result{OwnedTensor(DType::f32, {rows, router.experts}, logits),
                  OwnedTensor(DType::i32, {rows, router.chosen}), OwnedTensor(DType::f32, {rows, router.chosen})};
    const OwnedTensor bias(DType::f32, Shape{router.experts}, router.bias);
    ops_->run(Route{.logits = result.logits,
                    .bias = router.bias.empty() ? Tensor() : bias.tensor(),
                    .options = router.options,
                    .experts = result.experts,
                    .weights = result.weights});
    return result;
  }
  /// Returns logits without near ties, so that a small change does not change a choice.
  Values spread_logits(std::int64_t rows, std::int64_t experts) {
    Values all;
    for (std::int64_t row = 0; row < rows; ++row) {
      Values one(static_cast<std::size_t>(experts));
      for (std::size_t i = 0; i < one.size(); ++i) one[i] = 0.37 * static_cast<double>(i) - 1.5;
      std::ranges::shuffle(one, random_);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::unique_ptr<OperatorTable> ops_ = GetParam().make();
  std::mt19937 random_{7};
};

TEST_P(Routing, chooses_and_weighs_as_the_definition) {
  for (const Router& router : routers()) {
    constexpr std::int64_t rows = 9;
    const Values logits = testing::exact_normals(random_, rows * router.experts);  // with ties
    const Result got = routed(router, rows, logits);
    for (std::int64_t row = 0; row < rows; ++row) {
      const Values z(logits.begin() + row * router.experts, logits.begin() + (row + 1) * router.experts);
      const std::vector<std::int64_t> best = router.best(z);
      const Values weights = router.weights(z, best);
      for (std::int64_t slot = 0; slot < router.chosen; ++slot) {
        const std::int64_t at = row * router.chosen + slot;
        EXPECT_EQ(got.experts.get(at), static_cast<float>(best[static_cast<std::size_t>(slot)]));
        EXPECT_NEAR(got.weights.get(at), weights[static_cast<std::size_t>(slot)], 2e-6);
      }
    }
  }
}

TEST_P(Routing, the_lower_index_wins_ties_of_experts_and_groups) {  // MO-5
  Router router{{.kind = RouterKind::sigmoid, .groups = 4, .top_groups = 2}, 8, 3, {}};
  const Result groups = routed(router, 1, Values(8, 0.5));
  EXPECT_EQ(groups.experts.values(), (Values{0, 1, 2}));
  router.options.groups = router.options.top_groups = 1;
  const Result experts = routed(router, 1, {0, 1, 1, 0, 1, 1, 0, 0});
  EXPECT_EQ(experts.experts.values(), (Values{1, 2, 4}));
}

TEST_P(Routing, scores_that_are_not_numbers_choose_different_experts) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Router router{{}, 4, 3, {}};
  for (const Values& logits : {Values{nan, nan, nan, nan}, Values{1, nan, 2, nan}}) {
    const Result got = routed(router, 1, logits);
    Values experts = got.experts.values();
    std::ranges::sort(experts);
    EXPECT_TRUE(std::ranges::adjacent_find(experts) == experts.end());
    EXPECT_GE(experts.front(), 0);
    EXPECT_LE(experts.back(), 3);
  }
}

TEST_P(Routing, gradients_are_the_differences_of_weights) {
  for (const Router& router : routers()) {
    constexpr std::int64_t rows = 4;
    const Values logits = spread_logits(rows, router.experts);
    const Values dweights = testing::exact_normals(random_, rows * router.chosen);
    const Result at = routed(router, rows, logits);
    const OwnedTensor dlogits(DType::f32, {rows, router.experts});
    ops_->run(RouteBackward{.dweights = OwnedTensor(DType::f32, {rows, router.chosen}, dweights),
                            .logits = at.logits,
                            .experts = at.experts,
                            .weights = at.weights,
                            .options = router.options,
                            .dlogits = dlogits});
    for (std::int64_t i = 0; i < rows * router.experts; ++i) {
      const std::int64_t row = i / router.experts;
      const auto value = [&](double step) {
        Values z(logits.begin() + row * router.experts, logits.begin() + (row + 1) * router.experts);
        const std::vector<std::int64_t> best = router.best(z);
        z[static_cast<std::size_t>(i % router.experts)] += step;
        const Values weights = router.weights(z, best);
        return std::inner_product(weights.begin(), weights.end(), dweights.begin() + row * router.chosen, 0.0);
      };
      EXPECT_NEAR(dlogits.get(i), (value(1e-5) - value(-1e-5)) / 2e-5, 5e-6);
    }
  }
}

TEST_P(Routing, routes_are_in_the_order_of_experts_tokens_and_slots) {  // MO-1, MO-2
  constexpr std::int64_t rows = 50, chosen = 3, experts = 7;
  OwnedTensor best(DType::i32, {rows, chosen});
  std::vector<std::pair<std::int64_t, std::int64_t>> wanted;  // expert, route
  for (std::int64_t route = 0; route < rows * chosen; ++route) {
    const std::int64_t expert = (route * route + route / 5) % (experts - 1);  // the last has none
    best.set(route, static_cast<double>(expert));
    wanted.emplace_back(expert, route);
  }
  std::ranges::sort(wanted);
  const OwnedTensor offsets(DType::i32, Shape{experts + 1});
  const OwnedTensor tokens(DType::i32, Shape{rows * chosen}), routes(DType::i32, Shape{rows * chosen});
  const OwnedTensor places(DType::i32, {rows, chosen});
  ops_->run(SortRoutes{.experts = best, .offsets = offsets, .tokens = tokens, .routes = routes, .places = places});
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    const auto at = static_cast<std::int64_t>(row);
    const auto [expert, route] = wanted[row];
    EXPECT_EQ(routes.get(at), static_cast<float>(route));
    EXPECT_EQ(tokens.get(at), static_cast<float>(route / chosen));
    EXPECT_EQ(places.get(route), static_cast<float>(row));
    EXPECT_LE(offsets.get(expert), static_cast<float>(row));
    EXPECT_GT(offsets.get(expert + 1), static_cast<float>(row));
  }
  EXPECT_EQ(offsets.get(experts - 1), offsets.get(experts));
  EXPECT_EQ(offsets.get(experts), static_cast<float>(rows * chosen));
}

INSTANTIATE_TEST_SUITE_P(backends, Routing, ::testing::ValuesIn(testing::backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace maestro
