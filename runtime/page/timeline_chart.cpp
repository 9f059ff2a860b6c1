// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/timeline_chart.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/page/markup.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/svg.hpp"

namespace maestro {

namespace {

constexpr double chart_width = 960;

std::string_view class_of(TimelinePass pass) {
  constexpr std::array<std::string_view, 4> names{"p-forward", "p-backward", "p-both", "p-step"};
  return names[static_cast<std::size_t>(pass)];
}

std::string_view words_for(TimelinePass pass) {
  constexpr std::array<std::string_view, 4> names{"forward", "backward", "forward and backward", "end of the step"};
  return names[static_cast<std::size_t>(pass)];
}

class LaneChart {
 public:
  explicit LaneChart(const Timeline& timeline)
      : timeline_(timeline),
        sections_(sections_of(timeline)),
        bottom_(top + lane_height * static_cast<double>(timeline.lanes.size())) {
    for (const TimelineSlice& slice : timeline.slices) end_ms_ = std::max(end_ms_, slice.begin_ms + slice.length_ms);
  }

  [[nodiscard]] double height() const { return bottom_ + 30; }

  [[nodiscard]] std::string axes() const {
    std::string out;
    const double distance = tick_distance(end_ms_, 8);
    for (double ms = 0; ms <= end_ms_; ms += distance) {
      out += svg_line(x(ms), top - 4, x(ms), bottom_, "grid") +
             svg_text(x(ms), bottom_ + 20, "middle", shortened(ms) + (ms == 0 ? " ms" : ""));
    }
    for (std::size_t lane = 0; lane < timeline_.lanes.size(); ++lane) {
      out += svg_text(left - 10, y(lane) + 13, "end", timeline_.lanes[lane].track) + "<g class=\"faint\">" +
             svg_text(left - 10, y(lane) + 27, "end", timeline_.lanes[lane].device) + "</g>";
    }
    return out;
  }

  /// Draws the begin of each step's first pass.
  [[nodiscard]] std::string steps() const {
    std::string out;
    for (std::int64_t step = timeline_.first_step; step <= timeline_.last_step; ++step) {
      const auto first = std::ranges::find(timeline_.slices, step, &TimelineSlice::step);
      if (first == timeline_.slices.end()) continue;
      out += svg_line(x(first->begin_ms), top - 8, x(first->begin_ms), bottom_, "begin") +
             svg_text(x(first->begin_ms) + 4, top - 12, "start", "step " + std::to_string(step));
    }
    return out;
  }

  [[nodiscard]] std::string slices() const {
    std::string out;
    for (const TimelineSlice& slice : timeline_.slices) {
      const TimelineLane& lane = timeline_.lanes[slice.lane];
      const std::size_t section = colour_of(lane.section, sections_);
      const double width = std::max(least_width, x(slice.begin_ms + slice.length_ms) - x(slice.begin_ms));
      out += "<rect class=\"s" + std::to_string(section) + " " + std::string(class_of(slice.pass)) + "\" x=\"" +
             fixed(x(slice.begin_ms), 2) + "\" y=\"" + fixed(y(slice.lane) + 4, 1) + "\" width=\"" + fixed(width, 2) +
             "\" height=\"26\"><title>" + escaped(lane.track) + " " + std::string(words_for(slice.pass)) + ", step " +
             std::to_string(slice.step) + ": " + fixed(slice.length_ms, 2) + " ms</title></rect>";
    }
    return out;
  }

 private:
  static constexpr double left = 132, right = chart_width - 16, top = 26, lane_height = 38, least_width = 0.6;
  [[nodiscard]] double x(double ms) const { return left + (right - left) * ms / end_ms_; }
  [[nodiscard]] double y(std::size_t lane) const { return top + lane_height * static_cast<double>(lane); }

  const Timeline& timeline_;
  std::vector<std::string> sections_;
  double bottom_;
  double end_ms_ = 1e-6;
};

}  // namespace

std::vector<std::string> sections_of(const Timeline& timeline) {
  return timeline.sections.empty() ? sections_of(timeline.lanes) : timeline.sections;
}

std::string timeline_chart(const Timeline& timeline) {
  if (timeline.slices.empty()) return "";
  const LaneChart chart(timeline);
  return svg_opened(chart_width, chart.height(), "what every lane did, over time") + chart.axes() + chart.steps() +
         chart.slices() + "</svg>";
}

}  // namespace maestro
