// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/assignment.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace maestro {

namespace {

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

void check(const CostMatrix& costs) {
  if (costs.rows() > costs.columns()) {
    throw std::invalid_argument("Assignment: " + std::to_string(costs.rows()) + " rows, but " +
                                std::to_string(costs.columns()) + " columns");
  }
  for (std::size_t row = 0; row < costs.rows(); ++row) {
    for (std::size_t column = 0; column < costs.columns(); ++column) {
      if (std::isfinite(costs.at(row, column))) continue;
      throw std::invalid_argument("Assignment: the cost of row " + std::to_string(row) + " at column " +
                                  std::to_string(column) + " is not finite");
    }
  }
}

/// Rows that have entered, with potentials that keep all reduced costs at 0 or above.
class Matching {
 public:
  explicit Matching(const CostMatrix& costs)
      : costs_(costs),
        row_potential_(costs.rows()),
        column_potential_(costs.columns()),
        row_of_(costs.columns(), none),
        distance_(costs.columns()),
        from_(costs.columns()) {}

  /// Gives `row` a column; rows on the way to a free column change theirs.
  void enter(std::size_t row) {
    open_.resize(costs_.columns());
    for (std::size_t column = 0; column < open_.size(); ++column) open_[column] = column;
    std::ranges::fill(distance_, std::numeric_limits<double>::infinity());
    closed_.clear();
    double least = 0;  // length of the shortest way to the last closed column
    std::size_t column = none;
    for (std::size_t at = row;; at = row_of_[column]) {
      extend(at, column, least);
      column = take_nearest(least);
      if (row_of_[column] == none) break;
      closed_.push_back(column);
    }
    row_potential_[row] += least;
    for (const std::size_t each : closed_) {
      column_potential_[each] += distance_[each] - least;
      row_potential_[row_of_[each]] += least - distance_[each];
    }
    while (column != none) {  // every column of the way takes the row of the column before it
      const std::size_t before = from_[column];
      row_of_[column] = before == none ? row : row_of_[before];
      column = before;
    }
  }

  [[nodiscard]] std::vector<std::size_t> columns() const {
    std::vector<std::size_t> found(costs_.rows());
    for (std::size_t column = 0; column < row_of_.size(); ++column) {
      if (row_of_[column] != none) found[row_of_[column]] = column;
    }
    return found;
  }

 private:
  /// Updates distances with ways over `row`, which has column `over`.
  void extend(std::size_t row, std::size_t over, double least) {
    const double* costs = costs_.row(row);
    const double base = least - row_potential_[row];
    for (const std::size_t column : open_) {
      const double distance = base + costs[column] - column_potential_[column];
      if (distance >= distance_[column]) continue;
      distance_[column] = distance;
      from_[column] = over;
    }
  }

  /// Removes the nearest open column and returns it (AX-3).
  std::size_t take_nearest(double& least) {
    std::size_t best = 0;
    for (std::size_t at = 1; at < open_.size(); ++at) {
      const double distance = distance_[open_[at]];
      const double so_far = distance_[open_[best]];
      if (distance < so_far || (distance == so_far && goes_before(open_[at], open_[best]))) best = at;
    }
    const std::size_t column = open_[best];
    open_[best] = open_.back();
    open_.pop_back();
    least = distance_[column];
    return column;
  }

  [[nodiscard]] bool goes_before(std::size_t column, std::size_t other) const {
    const bool taken = row_of_[column] != none;
    const bool other_taken = row_of_[other] != none;
    return taken == other_taken ? column < other : other_taken;
  }

  const CostMatrix& costs_;
  std::vector<double> row_potential_;
  std::vector<double> column_potential_;
  std::vector<std::size_t> row_of_;  // by column
  std::vector<double> distance_;     // by column: length of the shortest way from the entering row
  std::vector<std::size_t> from_;    // by column: the previous column on that way
  std::vector<std::size_t> open_;    // columns without a final way
  std::vector<std::size_t> closed_;
};

std::vector<std::size_t> cheapest_left(const CostMatrix& costs) {
  std::vector<std::size_t> found;
  std::vector<bool> taken(costs.columns());
  for (std::size_t row = 0; row < costs.rows(); ++row) {
    std::size_t best = none;
    for (std::size_t column = 0; column < costs.columns(); ++column) {
      if (!taken[column] && (best == none || costs.at(row, column) < costs.at(row, best))) best = column;
    }
    taken[best] = true;
    found.push_back(best);
  }
  return found;
}

}  // namespace

Assignment::Assignment(const CostMatrix& costs) {
  check(costs);
  if (costs.rows() > most_exact_rows) {
    columns_ = cheapest_left(costs);
  } else {
    Matching matching(costs);
    for (std::size_t row = 0; row < costs.rows(); ++row) matching.enter(row);
    columns_ = matching.columns();
  }
  for (std::size_t row = 0; row < costs.rows(); ++row) cost_ += costs.at(row, columns_[row]);
}

}  // namespace maestro
