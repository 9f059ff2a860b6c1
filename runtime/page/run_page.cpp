// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/core/utf8.hpp"
#include "runtime/page/curve_chart.hpp"
#include "runtime/page/lane_chart.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/page/run_tables.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_points = 600;    // in a curve
constexpr std::size_t page_points = 18000;  // in all curves, about (PW-1)
constexpr std::size_t most_lanes = 40;      // in a chart
constexpr std::size_t most_dots = 60;       // validations in a chart

/// Returns the sections of a page, which have the same colour in all charts.
std::vector<std::string> sections_of(const RunPage& page) {
  std::vector<std::string> sections;
  for (const auto* curves : {&page.utilization, &page.curves}) {
    for (const RunCurve& curve : *curves) {
      if (std::ranges::find(sections, curve.section) == sections.end()) sections.push_back(curve.section);
    }
  }
  return sections;
}

/// Draws all charts of a page.
class Charts {
 public:
  explicit Charts(const RunPage& page) : page_(page), sections_(sections_of(page)) {
    const std::size_t curves = std::max<std::size_t>(page.curves.size() + page.utilization.size() + 2, 1);
    points_ = std::clamp<std::size_t>(page_points / curves, 60, most_points);
  }

  [[nodiscard]] std::string by_metric() const {
    std::string out;
    for (const std::string& metric : metrics()) {
      CurveChart chart;
      chart.label = metric;
      chart.linear = metric == "lr";  // its end near zero would fill a logarithmic scale
      for (const std::string& section : sections_) {
        ChartLine line{section, colour(section), {}, dots(section, metric)};
        for (const RunCurve& curve : page_.curves) {
          if (curve.section == section && curve.metric == metric) line.points = thinned(curve.points, points_);
        }
        if (!line.points.empty() || !line.dots.empty()) chart.lines.push_back(std::move(line));
      }
      out += plot(metric, chart);
    }
    std::vector<std::string> names = sections_;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::find(page_.curves, name, &RunCurve::section) == page_.curves.end();
    });
    return out.empty() ? "" : part("Curves", curves_remark(), out, legend(names));
  }

  [[nodiscard]] std::string by_time() const {
    CurveChart busy;
    busy.label = "busy";
    busy.shares = true;
    std::vector<std::string> names;
    for (const RunCurve& curve : page_.utilization) {
      busy.lines.push_back({curve.section, colour(curve.section), thinned(curve.points, points_), {}});
      names.push_back(curve.section);
    }
    CurveChart times;
    times.label = "ms";
    for (const RunCurve& curve : page_.times) {
      times.lines.push_back(
          {curve.metric, curve.metric == "makespan_ms" ? 5UL : 3UL, thinned(curve.points, points_), {}});
    }
    const std::string drawn =
        plot("busy, share of the makespan", busy) + plot("makespan and lower bound of a step, ms", times);
    if (drawn.empty()) return "";
    return part(
        "Busy and waiting",
        "Share of a step's makespan that a section's lanes spent in passes of that step. Steps overlap, so for the "
        "rest they waited or ran passes of other steps: see the lanes.",
        drawn,
        legend(names) + "<li><i class=\"s5 line\"></i>makespan</li><li><i class=\"s3 line\"></i>lower bound</li>");
  }

  [[nodiscard]] std::string by_lane() const {
    std::vector<RunLane> lanes = page_.lane_times;
    std::string remark =
        "Shares of each lane's time, by step: passes, the end of steps (sums of gradients, the "
        "optimizer), and waits.";
    if (lanes.size() > most_lanes) {
      remark += " The first " + std::to_string(most_lanes) + " of " + std::to_string(lanes.size()) + " lanes.";
      lanes.resize(most_lanes);
    }
    const std::string chart = lane_chart(lanes, [this](const std::string& section) { return colour(section); });
    if (chart.empty()) return "";
    std::vector<std::string> names = sections_;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::find(lanes, name, &RunLane::section) == lanes.end();
    });
    std::string legend;
    for (const std::string& name : names) {
      legend += "<li><i class=\"s" + std::to_string(colour(name)) + " p-both\"></i>" + escaped(name) + "</li>";
    }
    legend += "<li><i class=\"p-step\"></i>end of steps</li><li><i class=\"waits\"></i>waits</li>";
    return chart_part({"Lanes over the steps", remark}, chart, legend);
  }

 private:
  [[nodiscard]] std::vector<std::string> metrics() const {
    std::vector<std::string> found;
    const auto add = [&](const std::string& metric) {
      if (std::ranges::find(found, metric) == found.end()) found.push_back(metric);
    };
    for (const RunCurve& curve : page_.curves) add(curve.metric);
    for (const RunValidation& validation : page_.validations) {
      for (const auto& [metric, value] : validation.metrics) add(metric);
    }
    constexpr std::array<std::string_view, 5> first{"loss", "ce", "kl", "grad_norm", "lr"};
    std::ranges::stable_sort(
        found, {}, [&](const std::string& metric) { return std::ranges::find(first, metric) - first.begin(); });
    return found;
  }

  [[nodiscard]] std::size_t colour(const std::string& section) const {
    return static_cast<std::size_t>(std::ranges::find(sections_, section) - sections_.begin()) % chart_colours;
  }

  [[nodiscard]] std::vector<ChartDot> dots(const std::string& section, const std::string& metric) const {
    std::vector<ChartDot> out;
    for (const RunValidation& validation : page_.validations) {
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

  [[nodiscard]] std::string curves_remark() const {
    const bool validated = !page_.validations.empty();
    return std::string(
               "By step. A line is the moving mean; the fainter line has all values, an area their range if "
               "there are more than the chart has room for.") +
           (validated ? " A dot is a validation." : "");
  }

  [[nodiscard]] static std::string plot(const std::string& title, const CurveChart& chart) {
    const std::string drawing = curve_chart(chart);
    if (drawing.empty()) return "";
    return "<figure class=\"plot\"><figcaption>" + escaped(title) + "</figcaption>" + drawing + "</figure>\n";
  }

  [[nodiscard]] std::string legend(const std::vector<std::string>& names) const {
    std::string out;
    for (const std::string& name : names) {
      out += "<li><i class=\"s" + std::to_string(colour(name)) + " line\"></i>" + escaped(name) + "</li>";
    }
    return out;
  }

  [[nodiscard]] static std::string part(const std::string& title, const std::string& remark, const std::string& plots,
                                        const std::string& legend) {
    return "<h2>" + title + "</h2>\n<p class=\"faint\">" + remark + "</p>\n<ul class=\"legend\">" + legend +
           "</ul>\n<div class=\"plots\">\n" + plots + "</div>\n";
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
