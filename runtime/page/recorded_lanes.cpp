// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/recorded_lanes.hpp"

#include <algorithm>

#include "runtime/page/curve_chart.hpp"

namespace maestro {

std::optional<TimelineLane> lane_of(const std::string& text) {
  constexpr std::string_view before = "section '", between = "' replica ", on = " on ";
  const std::size_t replica = text.find(between), place = text.rfind(on);
  if (!text.starts_with(before) || replica == std::string::npos || place == std::string::npos || place < replica) {
    return std::nullopt;
  }
  const std::string section = text.substr(before.size(), replica - before.size());
  const std::size_t number = replica + between.size();
  TimelineLane lane{section, section + "/" + text.substr(number, place - number), text.substr(place + on.size())};
  if (lane.device.starts_with("host")) return std::nullopt;
  return lane;
}

std::vector<TimelineLane> lanes_of(const std::vector<std::string>& texts) {
  std::vector<TimelineLane> lanes;
  for (const std::string& text : texts) {
    if (auto lane = lane_of(text)) lanes.push_back(std::move(*lane));
  }
  return lanes;
}

std::vector<std::string> devices_of(const TimelineLane& lane) {
  constexpr std::string_view before_process = " of process ", between = ", ";
  const std::size_t end = std::min(lane.device.rfind(before_process), lane.device.size());
  const std::string process = lane.device.substr(end);
  std::vector<std::string> devices;
  for (std::size_t at = 0; at < end;) {
    const std::size_t next = std::min(lane.device.find(between, at), end);
    devices.push_back(lane.device.substr(at, next - at) + process);
    at = next + between.size();
  }
  return devices;
}

std::string_view section_of_stage(std::string_view name) {
  return name.substr(0, std::min(name.rfind(".stage"), name.size()));
}

std::vector<std::string> sections_of(const std::vector<TimelineLane>& lanes) {
  std::vector<std::string> sections;
  for (const TimelineLane& lane : lanes) {
    const std::string section(section_of_stage(lane.section));
    if (std::ranges::find(sections, section) == sections.end()) sections.push_back(section);
  }
  return sections;
}

std::size_t colour_of(std::string_view section, const std::vector<std::string>& sections) {
  const auto found = std::ranges::find(sections, section_of_stage(section));
  return static_cast<std::size_t>(found - sections.begin()) % chart_colours;
}

}  // namespace maestro
