// SPDX-License-Identifier: Apache-2.0
// Division of a device's multiprocessors over sections, in groups that the device cannot divide. Pure.
//
// MP-1 (disjoint shares): every group belongs to a single share at most.
// MP-2 (nearest whole number): a share gets the number of groups that is nearest to its fraction (the lower if two are
//       equally near), at least 1, and never all groups for a share below 1. So the order of shares does not matter,
//       except that the last share gets fewer groups if only fewer are left.
// MP-3 (remainder): multiprocessors outside of groups stay idle: the driver does not promise clusters of thread blocks
//       there, and passes were not faster with them (benchmarks/gpu/README.md). An H200 has 132: 15 groups of 8,
//       and 12.
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
