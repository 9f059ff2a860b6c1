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
  std::size_t lane = 0;  ///< index in Timeline::lanes
  TimelinePass pass = TimelinePass::forward;
  double begin_ms = 0;  ///< time from the begin of the first slice
  double length_ms = 0;
  std::int64_t step = 0;
};

struct TimelineLane {
  std::string section;
  std::string track;   ///< name in the trace: section/replica
  std::string device;  ///< device, for a person
};

struct Timeline {
  std::vector<TimelineLane> lanes;
  std::vector<TimelineSlice> slices;  ///< slices by begin
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::vector<std::string> sections = {};  ///< in colour order (colour_of()); empty: as the lanes have them
};

/// Returns the passes of `steps` training steps in the middle of the trace, on the given lanes; without passes in the
/// trace no slices. Errors name the file: it cannot be read, or is not a trace of maestro.
[[nodiscard]] Result<Timeline> read_timeline(const std::filesystem::path& trace, std::vector<TimelineLane> lanes,
                                             std::int64_t steps);

}  // namespace maestro
