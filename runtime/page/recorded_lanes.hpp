// SPDX-License-Identifier: Apache-2.0
// The lanes of a run as its record names them: sections, devices, and the order that decides the sections' colours.
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/page/timeline.hpp"

namespace maestro {

/// Returns the lane of "section 'student' replica 0 on cpu:0 of process 0", as a trace names it; nothing for a data
/// source, which runs on no device.
[[nodiscard]] std::optional<TimelineLane> lane_of(const std::string& text);

/// Returns the lanes of such texts, without data sources.
[[nodiscard]] std::vector<TimelineLane> lanes_of(const std::vector<std::string>& texts);

/// Returns each device of a lane with its process: "cpu:0 of process 0".
[[nodiscard]] std::vector<std::string> devices_of(const TimelineLane& lane);

/// Returns "student" for the stage "student.stage1"; returns other names unchanged.
[[nodiscard]] std::string_view section_of_stage(std::string_view name);

/// Returns the sections of lanes without their stages, each once, in the order of the lanes.
[[nodiscard]] std::vector<std::string> sections_of(const std::vector<TimelineLane>& lanes);

/// Returns the number of a section's colour (class s0, s1, ...) if the job has these sections; a stage has the colour
/// of its section. A section that is not in the list follows the last one.
[[nodiscard]] std::size_t colour_of(std::string_view section, const std::vector<std::string>& sections);

}  // namespace maestro
