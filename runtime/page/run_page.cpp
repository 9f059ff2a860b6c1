// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/core/utf8.hpp"
#include "runtime/page/curve_chart.hpp"
#include "runtime/page/lane_chart.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/run_tables.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_points = 600;    // in a curve
constexpr std::size_t page_points = 18000;  // in all curves, about (PW-1)
constexpr std::size_t most_lanes = 40;      // in a chart
constexpr std::size_t most_dots = 60;       // validations in a chart

constexpr std::array<std::string_view, 3> step_times{"step_ms", "makespan_ms", "lower_bound_ms"};
constexpr std::array<std::string_view, 3> step_time_names{"step time", "makespan", "lower bound"};

/// Draws all charts of a page.
class Charts {
 public:
  explicit Charts(const RunPage& page) : page_(page), sections_(sections_of(page)) {
    const std::size_t curves = page.curves.size() + page.busy.size() + step_times.size();
    points_ = std::clamp<std::size_t>(page_points / curves, 60, most_points);
  }

  [[nodiscard]] std::string by_metric() const {
    std::string out;
    for (const std::string& metric : metrics_of(page_)) {
      CurveChart chart;
      chart.label = metric;
      chart.linear = metric == "lr";  // its end near zero would fill a logarithmic scale
      for (const std::string& section : sections_) {
        ChartLine line{section, colour(section), {}, validation_dots(page_, section, metric)};
        for (const RunCurve& curve : page_.curves) {
          if (curve.section == section && curve.metric == metric) line.points = thinned(curve.points, points_);
        }
        if (!line.points.empty() || !line.dots.empty()) chart.lines.push_back(std::move(line));
      }
      out += plot_part(metric, curve_chart(chart));
    }
    std::vector<std::string> names = sections_;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::find(page_.curves, name, &RunCurve::section) == page_.curves.end();
    });
    return out.empty() ? "" : plots_part({"Curves", curves_remark()}, out, legend(names));
  }

  [[nodiscard]] std::string by_time() const {
    CurveChart busy;
    busy.label = "busy";
    busy.shares = true;
    std::vector<std::string> names;
    for (const RunCurve& curve : page_.busy) {
      busy.lines.push_back({curve.section, colour(curve.section), thinned(curve.points, points_), {}});
      names.push_back(curve.section);
    }
    CurveChart times;
    times.label = "ms";
    std::string entries = legend(names);
    for (const RunCurve& curve : page_.times) {
      const auto at = static_cast<std::size_t>(std::ranges::find(step_times, curve.metric) - step_times.begin());
      times.lines.push_back({curve.metric, other_colours + at, thinned(curve.points, points_), {}});
      entries += line_entry(other_colours + at, step_time_names.at(at));
    }
    const std::string drawn = plot_part("busy, share of the time", curve_chart(busy)) +
                              plot_part("step time, makespan and lower bound, ms", curve_chart(times));
    if (drawn.empty()) return "";
    return plots_part(
        {"Busy and waiting",
         "Busy: share of the time between two step ends that a section's lanes spent in passes. Lanes on the same "
         "device add up to the device's share. Step time: from a step's end to the next step's end. Makespan: "
         "from the begin of a step's first pass to its last pass's end, longer than the step time if steps "
         "overlap. Lower bound: the least makespan that a step by itself can have."},
        drawn, entries);
  }

  [[nodiscard]] std::string by_lane() const {
    std::vector<RunLane> lanes = page_.lane_times;
    std::string remark =
        "Shares of each lane's time, by step: passes, the end of steps (gradient sums, the optimizer), waits for "
        "the device while it works for other lanes, and other waits." +
        old_step_ends_remark(page_);
    if (lanes.size() > most_lanes) {
      remark += " The first " + std::to_string(most_lanes) + " of " + std::to_string(lanes.size()) + " lanes.";
      lanes.resize(most_lanes);
    }
    const std::string chart = lane_chart(lanes, [this](const std::string& section) { return colour(section); });
    if (chart.empty()) return "";
    std::vector<std::string> names = sections_;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::find(lanes, name, [](const RunLane& lane) {
               return std::string(section_of_stage(lane.section()));
             }) == lanes.end();
    });
    std::string legend;
    for (const std::string& name : names) {
      legend += "<li><i class=\"s" + std::to_string(colour(name)) + " p-both\"></i>" + escaped(name) + "</li>";
    }
    legend +=
        "<li><i class=\"p-step\"></i>end of steps</li><li><i class=\"device-waits\"></i>waits for the device</li>"
        "<li><i class=\"waits\"></i>other waits</li>";
    return chart_part({"Lanes over the steps", remark}, chart, legend);
  }

 private:
  [[nodiscard]] std::size_t colour(const std::string& section) const { return colour_of(section, sections_); }

  [[nodiscard]] std::string curves_remark() const {
    const bool validated = !page_.validations.empty();
    return std::string(
               "By step. A line is the moving mean; the fainter line has all values, an area their range if "
               "there are more than the chart has room for.") +
           (validated ? " A dot is a validation." : "");
  }

  [[nodiscard]] std::string legend(const std::vector<std::string>& names) const {
    std::string out;
    for (const std::string& name : names) out += line_entry(colour(name), name);
    return out;
  }

  const RunPage& page_;
  std::vector<std::string> sections_;
  std::size_t points_ = most_points;
};

std::string repeat_part(const RunPage& page) {
  if (page.job.empty()) return "";
  return "<h2>Run it again</h2>\n<p class=\"faint\">With the text below as job.toml, in the folder that the run "
         "was started in:</p>\n<pre>" +
         escaped(page.command) + "</pre>\n<pre id=\"job\">" + escaped(page.job) + "</pre>\n";
}

std::string_view class_of(RecordedState state) {
  if (state == RecordedState::failed) return "state bad";
  return state == RecordedState::finished ? "state good" : "state";
}

}  // namespace

std::vector<std::string> metrics_of(const RunPage& page) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& metric) {
    if (std::ranges::find(found, metric) == found.end()) found.push_back(metric);
  };
  for (const RunCurve& curve : page.curves) add(curve.metric);
  for (const RunValidation& validation : page.validations) {
    for (const auto& [metric, value] : validation.metrics) add(metric);
  }
  constexpr std::array<std::string_view, 5> first{"loss", "ce", "kl", "grad_norm", "lr"};
  std::ranges::stable_sort(found, {},
                           [&](const std::string& metric) { return std::ranges::find(first, metric) - first.begin(); });
  return found;
}

std::vector<ChartDot> validation_dots(const RunPage& page, const std::string& section, const std::string& metric) {
  std::vector<ChartDot> out;
  for (const RunValidation& validation : page.validations) {
    const auto value = validation.metrics.find(metric);
    if (validation.section != section || value == validation.metrics.end()) continue;
    const auto step = static_cast<double>(validation.step);
    out.push_back(
        {step, value->second,
         section + ", validation after step " + std::to_string(validation.step) + ": " + shortened(value->second)});
  }
  const std::size_t every = (out.size() + most_dots - 1) / most_dots;
  std::vector<ChartDot> kept;
  for (std::size_t at = 0; at < out.size(); ++at) {
    if ((out.size() - 1 - at) % every == 0) kept.push_back(out[at]);
  }
  return kept;
}

std::vector<std::string> sections_of(const RunPage& page) {
  std::vector<std::string> sections = sections_of(lanes_of(page.lanes));
  for (const auto* curves : {&page.busy, &page.curves}) {
    for (const RunCurve& curve : *curves) {
      if (std::ranges::find(sections, curve.section) == sections.end()) sections.push_back(curve.section);
    }
  }
  return sections;
}

std::string old_step_ends_remark(const RunPage& page) {
  return page.old_step_ends ? " In steps that an earlier version has recorded, ends of steps include waits for the "
                              "device."
                            : "";
}

std::string state_line(const RunPage& page) {
  const std::string after = " after step " + std::to_string(page.last_step);
  switch (page.state) {
    case RecordedState::under_way:
      return "under way," + after;
    case RecordedState::cut_off:
      return "cut off" + after + ": the record has no end, and no process holds the run's folder";
    case RecordedState::finished:
      return "finished" + after;
    case RecordedState::interrupted:
      return "interrupted" + after;
    case RecordedState::failed:
      return "failed" + after + ": " + page.error;
  }
  return "";
}

std::string body_of(const RunPage& page) {
  std::string out = "<h1>" + escaped(page.title) + "</h1>\n<p class=\"" + std::string(class_of(page.state)) + "\">" +
                    escaped(state_line(page)) + "</p>\n" + figures_part(page.figures) + answers_part(page.answers);
  const Charts charts(page);
  out += charts.by_metric() + charts.by_time() + charts.by_lane() + timeline_part(page.timeline);
  for (const PageTable& table : tables_of(page)) out += html_of(table);
  return repaired_utf8(out + repeat_part(page));
}

std::string page_of(const RunPage& page, std::string_view head) {
  return html_page(repaired_utf8(page.title), body_of(page), head);
}

}  // namespace maestro
