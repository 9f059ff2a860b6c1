// SPDX-License-Identifier: Apache-2.0
// Division of a device's multiprocessors over sections, in groups that the device cannot cut. Pure.
//
// MP-1 (disjoint shares): every group belongs to a single share at most.
// MP-2 (nearest whole number): a share gets the number of groups nearest to its fraction, of two equally near
//       the lower, at least 1, and never all groups for a share below 1. So the order of shares changes nothing, but
//       for a last one that finds fewer groups left, and gets those.
// MP-3 (remainder): the multiprocessors of no group stay idle: the driver promises no clusters of thread blocks on
//       them, and passes were no faster with them (benchmarks/gpu/README.md). An H200's 132 are 15 groups of 8, and 12.
#pragma once

#include <span>
#include <vector>

namespace maestro {

/// A device's groups of multiprocessors, numbered from 0. Not thread-safe.
class MultiprocessorLedger {
 public:
  explicit MultiprocessorLedger(int groups) : in_use_(static_cast<std::size_t>(groups)) {}
  /// Returns the groups of a share in (0, 1]. Throws JobError(unavailable) if none is left.
  [[nodiscard]] std::vector<int> take(double share);
  void give_back(std::span<const int> groups);

 private:
  std::vector<bool> in_use_;  // by group
};

}  // namespace maestro
