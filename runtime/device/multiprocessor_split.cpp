// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/multiprocessor_split.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

std::vector<int> MultiprocessorLedger::take(double share) {
  if (!(share > 0 && share <= 1)) {
    throw JobError("a share of a device is above 0 and at most 1, not " + std::to_string(share));
  }
  const auto all = static_cast<double>(in_use_.size());
  const double most = share < 1 ? std::max(1.0, all - 1) : all;
  const auto wanted = static_cast<std::size_t>(std::clamp(std::ceil(share * all - 0.5), 1.0, most));
  std::vector<int> found;
  for (std::size_t group = 0; group < in_use_.size() && found.size() < wanted; ++group) {
    if (!in_use_[group]) found.push_back(static_cast<int>(group));
  }
  if (found.empty()) {
    throw JobError("no multiprocessors are left for a share of " + std::to_string(share) +
                       "; the shares of a device add up to at most 1",
                   ErrorCode::unavailable);
  }
  for (const int group : found) in_use_[static_cast<std::size_t>(group)] = true;
  return found;
}

void MultiprocessorLedger::give_back(std::span<const int> groups) {
  for (const int group : groups) in_use_[static_cast<std::size_t>(group)] = false;
}

}  // namespace maestro
