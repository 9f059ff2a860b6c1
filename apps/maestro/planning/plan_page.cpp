// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/plan_page.hpp"

#include <algorithm>

#include "runtime/page/markup.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/svg.hpp"
#include "runtime/page/timeline_chart.hpp"

namespace maestro {

namespace {

constexpr double width = 960, left = 132, row_height = 26, bar_height = 18;
constexpr std::int64_t first_step = 2;  // earlier steps start the sections
constexpr std::int64_t last_step = 3;
constexpr std::size_t most_lanes = 12;

std::string bars(const std::string& label, const std::vector<BarRow>& rows) {
  constexpr double right = width - 250;
  std::string out = svg_opened(width, 8 + row_height * static_cast<double>(rows.size()), label);
  double y = 6;
  for (const BarRow& row : rows) {
    out += svg_text(left - 10, y + 14, "end", row.name) + svg_line(left, y + bar_height, right, y + bar_height, "grid");
    double x = left;
    for (const BarRow::Part& part : row.parts) {
      const double wide = (right - left) * part.share;
      out += "<g><title>" + escaped(part.title) + "</title><rect class=\"" + part.kind + "\" x=\"" + fixed(x, 2) +
             "\" y=\"" + fixed(y, 2) + "\" width=\"" + fixed(wide, 2) + "\" height=\"" + fixed(bar_height, 0) +
             "\"/></g>";
      x += wide;
    }
    out += svg_text(right + 10, y + 14, "start", row.remark);
    y += row_height;
  }
  return out + "</svg>";
}

std::string front_chart(const std::vector<PricedTime>& points) {
  constexpr double height = 220, right = width - 24, top = 12, bottom = height - 34;
  double most_ms = 0;
  double most_price = 0;
  for (const PricedTime& point : points) {
    most_ms = std::max(most_ms, point.step_ms);
    most_price = std::max(most_price, point.price);
  }
  const auto x = [&](double ms) { return left + (right - left) * ms / (most_ms * 1.02); };
  const auto y = [&](double price) { return bottom - (bottom - top) * price / (most_price * 1.05); };
  std::string out = svg_opened(width, height, "price of a million samples against the time of a step");
  const double each_ms = tick_distance(most_ms, 8);
  for (double ms = 0; ms <= most_ms; ms += each_ms) {
    out += svg_line(x(ms), top, x(ms), bottom, "grid") +
           svg_text(x(ms), bottom + 20, "middle", shortened(ms) + (ms == 0 ? " ms" : ""));
  }
  const double each = tick_distance(most_price, 4);
  for (double price = 0; price <= most_price; price += each) {
    out +=
        svg_line(left, y(price), right, y(price), "grid") + svg_text(left - 10, y(price) + 4, "end", shortened(price));
  }
  std::string places;
  std::string dots;
  for (const PricedTime& point : points) {
    places += fixed(x(point.step_ms), 1) + "," + fixed(y(point.price), 1) + " ";
    dots += "<g><title>" + escaped(point.title) + "</title><circle class=\"s8 dot\" cx=\"" +
            fixed(x(point.step_ms), 1) + "\" cy=\"" + fixed(y(point.price), 1) + "\" r=\"4\"/></g>";
  }
  return out + "<polyline class=\"s8 mean\" points=\"" + places + "\"/>" + dots + "</svg>";
}

TimelinePass pass_of(LaneInterval::Kind kind) {
  switch (kind) {
    case LaneInterval::Kind::backward:
      return TimelinePass::backward;
    case LaneInterval::Kind::forward_backward:
      return TimelinePass::both;
    case LaneInterval::Kind::boundary:
      return TimelinePass::step;
    default:
      return TimelinePass::forward;
  }
}

/// Returns the lanes that are drawn: replica 0 of every section, then replica 1, and so on.
std::vector<LaneKey> drawn_lanes(const Rehearsed& rehearsed, const SectionGraph& graph) {
  std::vector<LaneKey> lanes;
  for (const auto& [lane, intervals] : rehearsed.lanes) {
    if (graph.node(lane.section).plays_in_steps()) lanes.push_back(lane);
  }
  std::ranges::stable_sort(lanes, {}, [](const LaneKey& lane) { return lane.replica; });
  lanes.resize(std::min(lanes.size(), most_lanes));
  std::ranges::sort(lanes);
  return lanes;
}

}  // namespace

BarRow time_row(const std::string& section, const SectionShares& shares, const Timeline& timeline) {
  const std::vector<std::string> sections = sections_of(timeline);
  const std::size_t colour = colour_of(section, sections);
  BarRow row{section, {}, percent(shares.passes) + " passes, " + percent(shares.step_ends) + " step ends"};
  row.parts.push_back({shares.passes, "s" + std::to_string(colour) + " p-both", "passes " + percent(shares.passes)});
  row.parts.push_back({shares.step_ends, "p-step", "step ends " + percent(shares.step_ends)});
  for (const auto& [reason, share] : shares.waits) {
    row.parts.push_back({share, "waits", "waits for " + reason + " " + percent(share)});
  }
  return row;
}

Timeline timeline_of(const Rehearsed& rehearsed, const SectionGraph& graph) {
  Timeline timeline;
  for (const GraphNode& node : graph.nodes()) {
    if (node.plays_in_steps() && node.stage == 0) timeline.sections.push_back(node.section_name());
  }
  timeline.first_step = first_step;
  timeline.last_step = last_step;
  for (const LaneKey& key : drawn_lanes(rehearsed, graph)) {
    const GraphNode& node = graph.node(key.section);
    const std::size_t lane = timeline.lanes.size();
    timeline.lanes.push_back({node.section_name(), node.name + "/" + std::to_string(key.replica.value()), ""});
    for (const LaneInterval& interval : rehearsed.lanes.at(key)) {
      const auto step = static_cast<std::int64_t>(interval.step.value());
      if (interval.kind == LaneInterval::Kind::wait || step < first_step || step > last_step) continue;
      timeline.slices.push_back(
          {lane, pass_of(interval.kind), interval.start_ms, interval.end_ms - interval.start_ms, step});
    }
  }
  std::ranges::stable_sort(timeline.slices, {}, &TimelineSlice::begin_ms);
  const double begin_ms = timeline.slices.empty() ? 0 : timeline.slices.front().begin_ms;
  for (TimelineSlice& slice : timeline.slices) slice.begin_ms -= begin_ms;
  return timeline;
}

std::string page_of(const PlanPage& page) {
  std::string body = "<h1>" + escaped(page.title) + "</h1>\n<p class=\"faint\">" + escaped(page.remark) + "</p>\n" +
                     figures_part(page.figures);
  if (!page.times.empty()) {
    body += chart_part({"Time of the sections", "Passes, ends of steps, and waits (their reasons under the pointer)."},
                       bars("uses of each section's time", page.times), "");
  }
  body += timeline_part(page.timeline);
  if (!page.memory.empty()) {
    body += chart_part({"Device memory", "Estimated by dry passes."}, bars("device memory in use", page.memory), "");
  }
  if (page.front.size() > 1) {
    body += chart_part({"Time and cost", "Milliseconds of a step, and the price of a million samples, by bounds."},
                       front_chart(page.front), "");
  }
  for (const PageTable& table : page.tables) body += html_of(table);
  return html_page(page.title, body);
}

}  // namespace maestro
