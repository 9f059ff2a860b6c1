// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/stage_cut.hpp"

#include <algorithm>
#include <limits>

namespace maestro {

std::vector<std::int64_t> cut_stages(std::span<const double> layers, double before, double after, std::int64_t stages) {
  const auto count = static_cast<std::int64_t>(layers.size());
  std::vector<double> sum(layers.size() + 1, 0.0);
  for (std::size_t at = 0; at < layers.size(); ++at) sum[at + 1] = sum[at] + layers[at];
  const auto cost = [&](std::int64_t stage, std::int64_t first, std::int64_t end) {
    return sum[static_cast<std::size_t>(end)] - sum[static_cast<std::size_t>(first)] + (stage == 0 ? before : 0) +
           (stage + 1 == stages ? after : 0);
  };
  // best[s][i]: cost of the most expensive among stages s, s+1, ... if s begins at layer i; take[s][i]: layers of s in
  // that cut.
  const auto width = static_cast<std::size_t>(count) + 1;
  const double impossible = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(static_cast<std::size_t>(stages) + 1, std::vector<double>(width, impossible));
  std::vector<std::vector<std::int64_t>> take(static_cast<std::size_t>(stages), std::vector<std::int64_t>(width, 0));
  best.back()[static_cast<std::size_t>(count)] = 0;
  for (std::int64_t stage = stages - 1; stage >= 0; --stage) {
    for (std::int64_t first = 0; first < count; ++first) {
      auto& own = best[static_cast<std::size_t>(stage)][static_cast<std::size_t>(first)];
      for (std::int64_t end = first + 1; end <= count; ++end) {
        const double rest = best[static_cast<std::size_t>(stage) + 1][static_cast<std::size_t>(end)];
        const double dearest = std::max(cost(stage, first, end), rest);
        if (!(dearest < own)) continue;  // TC-2
        own = dearest;
        take[static_cast<std::size_t>(stage)][static_cast<std::size_t>(first)] = end - first;
      }
    }
  }
  std::vector<std::int64_t> cut;
  std::int64_t first = 0;
  for (std::size_t stage = 0; stage < static_cast<std::size_t>(stages); ++stage) {
    cut.push_back(take[stage][static_cast<std::size_t>(first)]);
    first += cut.back();
  }
  return cut;
}

}  // namespace maestro
