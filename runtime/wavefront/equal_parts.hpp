// SPDX-License-Identifier: Apache-2.0
// Workloads that consist of equal parts: the first lanes of each section with the first tasks, the next lanes with the
// next tasks, and so on, none of which has an input or a device of another part. Of a section whose lanes have several
// speeds, each part has as many lanes of each speed. One part is planned, and its schedule is repeated: every lane gets
// as much work as its like in the other parts. Pure.
//
// EQ-1 (legal): the repeated schedule of a part obeys workload.hpp where the part's schedule does, and is as long.
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
  /// Returns the smallest parts; nothing where there are none. O(n) in tasks, times the numbers of parts that are
  /// tried.
  [[nodiscard]] static std::optional<EqualParts> of(const Workload& workload);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const Workload& part() const { return part_; }
  /// Returns the schedule of all parts from that of one.
  [[nodiscard]] Schedule repeated(const Schedule& of_part) const;

 private:
  using LanesOfParts = std::vector<std::vector<std::int64_t>>;  // of a section: by part, in the order of the lanes
  EqualParts(const Workload& workload, const std::vector<std::vector<std::size_t>>& by_section,
             std::vector<LanesOfParts> lanes);

  std::int64_t count_;
  Workload part_;
  std::vector<LanesOfParts> lanes_;              // of the workload, by section
  std::vector<std::vector<std::size_t>> tasks_;  // of the workload, by task of the part and part
};

}  // namespace maestro
