// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

/// Returns the lowest cost of all matchings, by dynamic programming over the columns used by the first rows.
double least_cost(const CostMatrix& costs) {
  std::vector<double> least(std::size_t{1} << costs.columns(), std::numeric_limits<double>::infinity());
  least[0] = 0;
  for (std::size_t taken = 0; taken < least.size(); ++taken) {
    const auto row = static_cast<std::size_t>(__builtin_popcountll(taken));
    if (row >= costs.rows()) continue;
    for (std::size_t column = 0; column < costs.columns(); ++column) {
      if ((taken >> column) & 1) continue;
      double& best = least[taken | (std::size_t{1} << column)];
      best = std::min(best, least[taken] + costs.at(row, column));
    }
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t taken = 0; taken < least.size(); ++taken) {
    if (static_cast<std::size_t>(__builtin_popcountll(taken)) == costs.rows()) best = std::min(best, least[taken]);
  }
  return best;
}

CostMatrix drawn(Random& random, std::size_t rows, std::size_t columns, std::uint64_t values) {
  CostMatrix costs(rows, columns);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      costs.at(row, column) = values == 0 ? 20 * random.uniform() - 10 : static_cast<double>(random.below(values)) - 2;
    }
  }
  return costs;
}

void expect_matching(const Assignment& found, const CostMatrix& costs) {  // AX-1
  const std::set<std::size_t> different(found.columns().begin(), found.columns().end());
  ASSERT_EQ(different.size(), costs.rows());
  double sum = 0;
  for (std::size_t row = 0; row < costs.rows(); ++row) {
    ASSERT_LT(found.column_of(row), costs.columns());
    sum += costs.at(row, found.column_of(row));
  }
  EXPECT_DOUBLE_EQ(found.cost(), sum);
}

TEST(Assignment, costs_as_little_as_any_matching) {  // AX-1, AX-2
  Random random(17);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::size_t rows = 1 + random.below(8);
    const std::size_t columns = rows + random.below(4);
    const CostMatrix costs =
        drawn(random, rows, columns, trial % 2 == 0 ? 0 : 1 + random.below(5));  // few distinct values give ties
    const Assignment found(costs);
    expect_matching(found, costs);
    EXPECT_NEAR(found.cost(), least_cost(costs), 1e-9) << "trial " << trial << ", " << rows << " x " << columns;
  }
}

TEST(Assignment, equal_costs_take_columns_in_order) {  // AX-3
  const Assignment found(CostMatrix(300, 400, 1.5));
  for (std::size_t row = 0; row < 300; ++row) EXPECT_EQ(found.column_of(row), row);
  CostMatrix costs(2, 3, 1);
  costs.at(0, 2) = 0;
  costs.at(1, 2) = 0;
  EXPECT_EQ(Assignment(costs).columns(), (std::vector<std::size_t>{2, 0}));
}

TEST(Assignment, is_the_same_at_every_run) {  // AX-3
  Random random(4);
  const CostMatrix costs = drawn(random, 60, 80, 4);
  EXPECT_EQ(Assignment(costs).columns(), Assignment(costs).columns());
}

TEST(Assignment, of_nothing_is_nothing) {
  EXPECT_TRUE(Assignment(CostMatrix(0, 0)).columns().empty());
  EXPECT_EQ(Assignment(CostMatrix(0, 5)).cost(), 0);
}

TEST(Assignment, refuses_costs_that_have_no_order) {
  for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    CostMatrix costs(2, 2);
    costs.at(1, 0) = wrong;
    EXPECT_THROW(Assignment{costs}, std::invalid_argument);
  }
  EXPECT_THROW(Assignment(CostMatrix(3, 2)), std::invalid_argument);
}

/// Returns the CPU time, which does not depend on other processes.
double seconds_of(const CostMatrix& costs) {
  const std::clock_t begin = std::clock();
  expect_matching(Assignment(costs), costs);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(Assignment, of_2048_rows_takes_a_second) {
  Random random(9);
  const double limit = 20;  // for a build without optimisation or with sanitizers
  const double drawn_s = seconds_of(drawn(random, 2048, 2048, 0));
  const double tied_s = seconds_of(drawn(random, 2048, 2048, 100));
  RecordProperty("drawn_ms", static_cast<int>(1e3 * drawn_s));
  RecordProperty("tied_ms", static_cast<int>(1e3 * tied_s));
  EXPECT_LT(drawn_s, limit);
  EXPECT_LT(tied_s, limit);
}

TEST(Assignment, of_more_rows_takes_the_cheapest_column_that_is_left) {  // AX-2
  Random random(5);
  const CostMatrix costs = drawn(random, Assignment::most_exact_rows + 1, Assignment::most_exact_rows + 1, 50);
  const Assignment found(costs);
  expect_matching(found, costs);
  std::vector<bool> taken(costs.columns());
  for (std::size_t row = 0; row < costs.rows(); ++row) {
    for (std::size_t column = 0; column < costs.columns(); ++column) {
      if (taken[column]) continue;
      ASSERT_LE(costs.at(row, found.column_of(row)), costs.at(row, column));
    }
    taken[found.column_of(row)] = true;
  }
}

}  // namespace
}  // namespace maestro
