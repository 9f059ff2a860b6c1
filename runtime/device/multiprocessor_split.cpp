// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/multiprocessor_split.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

MultiprocessorLedger::MultiprocessorLedger(int total, int granularity)
    : MultiprocessorLedger(total, std::clamp(granularity, 1, total), total / std::clamp(granularity, 1, total)) {}

MultiprocessorLedger::MultiprocessorLedger(int total, int granularity, int groups)
    : total_(total), granularity_(granularity), in_use_(static_cast<std::size_t>(groups)) {}

std::vector<int> MultiprocessorLedger::take(double share) {
  if (!(share > 0 && share <= 1)) {
    throw JobError("a share of a device is above 0 and at most 1, not " + std::to_string(share));
  }
  const long most = share < 1 ? std::max(1L, static_cast<long>(groups()) - 1) : groups();
  const auto wanted = static_cast<std::size_t>(std::clamp(std::lround(share * total_ / granularity_), 1L, most));
  std::vector<int> found;
  for (int group = 0; group < groups() && found.size() < wanted; ++group) {
    if (!in_use_[static_cast<std::size_t>(group)]) found.push_back(group);
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

int MultiprocessorLedger::multiprocessors(std::span<const int> groups) const {
  const int whole = static_cast<int>(groups.size()) * granularity_;
  const bool last = std::ranges::find(groups, this->groups() - 1) != groups.end();
  return whole + (last ? total_ - this->groups() * granularity_ : 0);  // MP-3
}

std::vector<int> multiprocessor_split(int total, std::span<const double> shares, int granularity) {
  MultiprocessorLedger ledger(total, granularity);
  std::vector<int> counts;
  counts.reserve(shares.size());
  for (const double share : shares) counts.push_back(ledger.multiprocessors(ledger.take(share)));
  return counts;
}

}  // namespace maestro
