// SPDX-License-Identifier: Apache-2.0
// The lanes of a run over a few steps, from its Perfetto trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

enum class TimelinePass : std::uint8_t { forward, backward, both, step };

struct TimelineSlice {
  std::size_t lane = 0;  ///< of Timeline::lanes
  TimelinePass pass = TimelinePass::forward;
  double begin_ms = 0;  ///< from the begin of the first slice
  double length_ms = 0;
  std::int64_t step = 0;
};

struct TimelineLane {
  std::string section;
  std::string track;   ///< in the trace: section/replica
  std::string device;  ///< for a person
};

struct Timeline {
  std::vector<TimelineLane> lanes;
  std::vector<TimelineSlice> slices;  ///< by begin
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
};

/// The passes of `steps` steps of training in the middle of the trace, on the lanes given. Without any pass
/// in the trace the slices are empty. Errors name the file: it cannot be read, or is no trace of maestro.
[[nodiscard]] Result<Timeline> read_timeline(const std::filesystem::path& trace, std::vector<TimelineLane> lanes,
                                             std::int64_t steps);

}  // namespace maestro
