// SPDX-License-Identifier: Apache-2.0
// The most recent rows of a list that grows throughout a run. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

namespace maestro {

/// Numbers rows from 0 in the order of their addition. A row keeps its number; the numbers of removed rows are not used
/// again. Not thread-safe.
template <class Row>
class RecentRows {
 public:
  /// Keeps at most this many rows from now on.
  void keep(std::size_t most) {
    most_ = most;
    drop_old();
  }
  void push_back(Row row) {
    rows_.push_back(std::move(row));
    numbers_.push_back(next_++);
    drop_old();
  }
  Row& emplace_back() {
    push_back(Row());
    return rows_.back();
  }
  /// Removes the kept rows for which `condition` is true.
  template <class Condition>
  void erase_if(Condition condition) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      if (condition(rows_[at])) continue;
      if (kept != at) rows_[kept] = std::move(rows_[at]);
      numbers_[kept++] = numbers_[at];
    }
    rows_.resize(kept);
    numbers_.resize(kept);
  }

  /// Returns the number of the next row that is added.
  [[nodiscard]] std::size_t next() const { return next_; }
  /// Returns the number of the oldest row that was not dropped because of keep().
  [[nodiscard]] std::size_t first() const { return left_; }
  /// Returns the index in kept() of the first row with at least this number.
  [[nodiscard]] std::size_t place_of(std::size_t number) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(numbers_, number) - numbers_.begin());
  }
  /// Returns the number of the row at an index in kept(); next() for an index past the last row.
  [[nodiscard]] std::size_t number_at(std::size_t place) const {
    return place < numbers_.size() ? numbers_[place] : next_;
  }
  /// Returns the kept rows, oldest first.
  [[nodiscard]] const std::deque<Row>& kept() const { return rows_; }

 private:
  void drop_old() {
    while (rows_.size() > most_) {
      rows_.pop_front();
      numbers_.pop_front();
      left_ = number_at(0);
    }
  }

  std::deque<Row> rows_;
  std::deque<std::size_t> numbers_;  // numbers of the rows
  std::size_t next_ = 0;
  std::size_t left_ = 0;
  std::size_t most_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace maestro
