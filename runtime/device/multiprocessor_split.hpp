// SPDX-License-Identifier: Apache-2.0
// How sections that share a device share its multiprocessors: in groups that the device cannot cut. Pure.
//
// MP-1 (disjoint shares): every group belongs to a single share at most.
// MP-2 (nearest whole number): a share gets the whole number of groups whose multiprocessors are nearest to its part of
//       the device's, at least 1, and never all groups for a share below 1; the last share that fits is reduced to the
//       remaining groups.
// MP-3 (remainder): the multiprocessors beyond the last whole group go to the share with the last group. They may be
// more
//       than a group: an H200's 132 are 15 groups of 8, and 12.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace maestro {

/// Multiprocessors of a device, in groups of `granularity`. Not thread-safe.
class MultiprocessorLedger {
 public:
  /// As many whole groups as fit, or the `groups` that the device was cut into.
  MultiprocessorLedger(int total, int granularity);
  MultiprocessorLedger(int total, int granularity, int groups);
  /// The groups of a share in (0, 1]. Throws JobError(unavailable) when none is left.
  [[nodiscard]] std::vector<int> take(double share);
  void give_back(std::span<const int> groups);
  /// Of these groups (MP-3).
  [[nodiscard]] int multiprocessors(std::span<const int> groups) const;
  [[nodiscard]] int groups() const { return static_cast<int>(in_use_.size()); }

 private:
  int total_;
  int granularity_;
  std::vector<bool> in_use_;  // by group
};

/// Returns the groups of each share when all are taken in this order; errors as take().
[[nodiscard]] std::vector<int> multiprocessor_split(int total, std::span<const double> shares, int granularity);

}  // namespace maestro
