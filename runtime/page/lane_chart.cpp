// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/lane_chart.hpp"

#include <algorithm>

#include "runtime/page/markup.hpp"
#include "runtime/page/svg.hpp"

namespace maestro {

namespace {

constexpr double width = 960, left = 132, right = width - 16, top = 8, row_height = 38, bar_height = 30;

std::string steps_text(const LaneSpan& span) {
  const std::string first = std::to_string(span.first_step);
  return span.first_step == span.last_step ? "step " + first
                                           : "steps " + first + " to " + std::to_string(span.last_step);
}

std::string title_of(const RunLane& lane, const LaneSpan& span) {
  const double total = span.total_ms();
  const std::string waits = waits_text(span);
  return lane.name + ", " + steps_text(span) + ": busy " + percent(span.busy_ms / total, 0) + ", end of steps " +
         percent(span.step_end_ms / total, 0) + ", waits for the device " + percent(span.device_ms() / total, 0) +
         (waits.empty() ? "" : ", other waits: " + waits);
}

}  // namespace

std::string lane_chart(const std::vector<RunLane>& lanes,
                       const std::function<std::size_t(const std::string& section)>& colour_of) {
  std::uint64_t first = 0, last = 0;
  for (const RunLane& lane : lanes) {
    if (lane.spans.empty()) continue;
    first = first == 0 ? lane.spans.front().first_step : std::min(first, lane.spans.front().first_step);
    last = std::max(last, lane.spans.back().last_step);
  }
  if (last == 0) return "";
  const auto x = [&](std::uint64_t step) {  // position of the step's begin
    return left + (right - left) * static_cast<double>(step - first) / static_cast<double>(last + 1 - first);
  };
  const double bottom = top + row_height * static_cast<double>(lanes.size());
  std::string out = svg_opened(width, bottom + 28, "what the time of every lane went into, over the steps");
  double y = top;
  for (const RunLane& lane : lanes) {
    const double base = y + bar_height;
    out += svg_text(left - 10, base - 10, "end", lane.name) + svg_line(left, base, right, base, "grid");
    for (const LaneSpan& span : lane.spans) {
      const double total = span.total_ms(), from = x(span.first_step), wide = x(span.last_step + 1) - from;
      if (total <= 0) continue;
      double stacked = base;
      const auto bar = [&](double ms, const std::string& kind) {
        const double high = bar_height * ms / total;
        stacked -= high;
        out += "<rect class=\"" + kind + "\" x=\"" + fixed(from, 2) + "\" y=\"" + fixed(stacked, 2) + "\" width=\"" +
               fixed(wide, 2) + "\" height=\"" + fixed(high, 2) + "\"/>";
      };
      out += "<g><title>" + escaped(title_of(lane, span)) + "</title>";
      bar(span.busy_ms, "s" + std::to_string(colour_of(lane.section())) + " p-both");
      bar(span.step_end_ms, "p-step");
      bar(span.device_ms(), "device-waits");
      bar(span.waited_ms(), "waits");
      out += "</g>";
    }
    y += row_height;
  }
  out += svg_text(left, bottom + 20, "start", std::to_string(first));
  if (last > first) out += svg_text(right, bottom + 20, "end", std::to_string(last));
  return out + "</svg>";
}

}  // namespace maestro
