// SPDX-License-Identifier: Apache-2.0
// Minimum-cost matching of rows to columns. Pure; thread-safe.
//
// Rows enter one after another by shortest augmenting paths over reduced costs (Hungarian algorithm with potentials;
// Kuhn 1955, Jonker and Volgenant 1987): O(rows^2 columns) time, O(columns) memory in addition to the costs.
//
// AX-1 (matching): every row has a separate column.
// AX-2 (least cost): up to `most_exact_rows` rows no matching costs less, to rounding. With more rows each takes the
//       cheapest column that is left, in order: O(rows columns).
// AX-3 (ties): equal costs give equal matchings. Between columns as good as each other, a free column goes before a
//       taken column, then the lowest.
#pragma once

#include <cstddef>
#include <vector>

namespace maestro {

/// Costs by row and column.
class CostMatrix {
 public:
  CostMatrix(std::size_t rows, std::size_t columns, double cost = 0)
      : rows_(rows), columns_(columns), costs_(rows * columns, cost) {}
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] double& at(std::size_t row, std::size_t column) { return costs_[row * columns_ + column]; }
  [[nodiscard]] double at(std::size_t row, std::size_t column) const { return costs_[row * columns_ + column]; }
  [[nodiscard]] const double* row(std::size_t row) const { return costs_.data() + row * columns_; }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::vector<double> costs_;
};

class Assignment {
 public:
  static constexpr std::size_t most_exact_rows = 2048;
  /// Throws std::invalid_argument for more rows than columns and for a cost that is not finite.
  explicit Assignment(const CostMatrix& costs);

  [[nodiscard]] std::size_t column_of(std::size_t row) const { return columns_[row]; }
  [[nodiscard]] const std::vector<std::size_t>& columns() const { return columns_; }
  /// Returns the sum of the costs of all rows.
  [[nodiscard]] double cost() const { return cost_; }

 private:
  std::vector<std::size_t> columns_;  // by row
  double cost_ = 0;
};

}  // namespace maestro
