// SPDX-License-Identifier: Apache-2.0
// The last rows of a list that grows as long as a run does. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

namespace maestro {

/// Rows are numbered from 0 in the order of their addition; rows that have left memory keep their numbers. Not
/// thread-safe.
template <class Row>
class RecentRows {
 public:
  /// At most this many rows are kept from now on.
  void keep(std::size_t most) {
    most_ = most;
    drop_old();
  }
  void push_back(Row row) {
    rows_.push_back(std::move(row));
    drop_old();
  }
  Row& emplace_back() {
    push_back(Row());
    return rows_.back();
  }
  /// Removes the kept rows of which `condition` is true; the rows behind them are renumbered.
  template <class Condition>
  void erase_if(Condition condition) {
    std::erase_if(rows_, condition);
  }

  /// Returns how many rows there are with those that have left memory.
  [[nodiscard]] std::size_t size() const { return left_ + rows_.size(); }
  /// Returns the number of the first row that is kept.
  [[nodiscard]] std::size_t first() const { return left_; }
  /// The kept rows; most of the operations of a std::deque.
  [[nodiscard]] const std::deque<Row>& kept() const { return rows_; }

 private:
  void drop_old() {
    while (rows_.size() > most_) {
      rows_.pop_front();
      ++left_;
    }
  }

  std::deque<Row> rows_;
  std::size_t left_ = 0;
  std::size_t most_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace maestro
