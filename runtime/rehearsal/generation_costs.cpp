// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/generation_costs.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/core/quantile.hpp"

namespace maestro {

void GenerationCosts::add_decode(std::int64_t sequences, std::int64_t rows, double ms) {
  decode_[sequences].emplace_back(static_cast<double>(rows), ms);
  without_rows_.clear();
}

void GenerationCosts::fit() const {
  const auto& fewest = decode_.begin()->second;
  PassFit line;
  for (const auto& [rows, ms] : fewest) line.add(rows, ms);
  const bool several =
      std::ranges::any_of(fewest, [&](const auto& each) { return each.first != fewest.front().first; });
  of_row_ = several ? line.ms(2) - line.ms(1) : 0;
  for (const auto& [sequences, points] : decode_) {
    std::vector<double> rest;
    for (const auto& [rows, ms] : points) rest.push_back(ms - of_row_ * rows);
    without_rows_[sequences] = std::max(0.0, quantile_of(std::move(rest), 0.5));
  }
}

double GenerationCosts::decode(std::int64_t sequences, std::int64_t rows) const {
  if (decode_.empty()) return 0;
  if (without_rows_.empty()) fit();
  const double attention = of_row_ * static_cast<double>(rows);
  const auto above = without_rows_.lower_bound(sequences);
  if (above == without_rows_.end()) {
    const auto& [most, ms] = *without_rows_.rbegin();
    return ms * static_cast<double>(sequences) / static_cast<double>(most) + attention;
  }
  if (above == without_rows_.begin()) return above->second + attention;
  const auto below = std::prev(above);
  const double part = static_cast<double>(sequences - below->first) / static_cast<double>(above->first - below->first);
  return (1 - part) * below->second + part * above->second + attention;
}

}  // namespace maestro
