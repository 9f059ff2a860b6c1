// SPDX-License-Identifier: Apache-2.0
// Workloads that consist of equal parts: the first lanes of each section with the first tasks, the next lanes with the
// next tasks, and so on; no part has an input or a device of another part. If a section's lanes have several speeds,
// each part has the same number of lanes of each speed. One part is planned, and its schedule is repeated: every lane
// gets as much work as its equivalent in the other parts. Pure.
//
// EQ-1 (legal): a part's repeated schedule obeys workload.hpp if the part's schedule does, and is as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

class EqualParts {
 public:
  /// Returns the smallest parts; nothing if there are none. O(n) in tasks, times the numbers of parts that are tried.
  [[nodiscard]] static std::optional<EqualParts> of(const Workload& workload);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const Workload& part() const { return part_; }
  /// Returns the schedule of all parts from one part's schedule.
  [[nodiscard]] Schedule repeated(const Schedule& of_part) const;

 private:
  using LanesOfParts = std::vector<std::vector<std::int64_t>>;  // a section's lanes: by part, in lane order
  EqualParts(const Workload& workload, const std::vector<std::vector<std::size_t>>& by_section,
             std::vector<LanesOfParts> lanes);

  std::int64_t count_;
  Workload part_;
  std::vector<LanesOfParts> lanes_;              // lanes of the workload, by section
  std::vector<std::vector<std::size_t>> tasks_;  // tasks of the workload, by task in the part and part
};

}  // namespace maestro
