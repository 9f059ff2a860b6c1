// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/job_pairs.hpp"

#include <algorithm>

#include "runtime/schedule/assignment.hpp"

namespace maestro {

double slow_down(double busy, double other) {
  return std::max(1.0, busy + other);
}

double gain_s(const PossiblePair& pair) {
  const double together_s = std::min(pair.left_of_running_s, pair.left_of_waiting_s);
  return pair.wait_s - 2 * together_s * (slow_down(pair.busy_waiting, pair.busy_running) - 1);
}

std::vector<std::optional<std::size_t>> best_pairs(const std::vector<std::vector<double>>& gains) {
  std::vector<std::optional<std::size_t>> pairs(gains.size());
  if (gains.empty()) return pairs;
  const std::size_t running = gains.front().size();
  CostMatrix costs(gains.size(), running + gains.size());  // the last columns: waiting without a partner
  for (std::size_t row = 0; row < gains.size(); ++row) {
    for (std::size_t column = 0; column < running; ++column) costs.at(row, column) = -std::max(0.0, gains[row][column]);
  }
  const Assignment matching(costs);
  for (std::size_t row = 0; row < gains.size(); ++row) {
    const std::size_t column = matching.column_of(row);
    if (column < running && gains[row][column] > 0) pairs[row] = column;
  }
  return pairs;
}

}  // namespace maestro
