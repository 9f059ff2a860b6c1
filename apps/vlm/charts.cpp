// SPDX-License-Identifier: Apache-2.0
#include "apps/vlm/charts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "apps/vlm/markup.hpp"

namespace maestro {

namespace {

constexpr double chart_width = 960;

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + std::string(anchor) + "\">" +
         escaped(text) + "</text>";
}

std::string line(double x1, double y1, double x2, double y2, std::string_view kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" +
         fixed(x2, 1) + "\" y2=\"" + fixed(y2, 1) + "\"/>";
}

std::string opened(double height, std::string_view label) {
  return "<svg viewBox=\"0 0 " + fixed(chart_width, 0) + " " + fixed(height, 0) + "\" role=\"img\" aria-label=\"" +
         escaped(label) + "\">";
}

/// A round distance between ticks, about `wanted` of them up to `span`.
double tick_distance(double span, double wanted) {
  const double least = span / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10.0 * power;
}

/// At most `most` points, each the mean of its neighbours.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t most) {
  const std::size_t group = (points.size() + most - 1) / std::max<std::size_t>(most, 1);
  std::vector<ChartPoint> out;
  for (std::size_t begin = 0; begin < points.size(); begin += group) {
    const std::size_t end = std::min(points.size(), begin + group);
    ChartPoint mean;
    for (std::size_t at = begin; at < end; ++at) {
      mean.step += points[at].step / static_cast<double>(end - begin);
      mean.value += points[at].value / static_cast<double>(end - begin);
    }
    out.push_back(mean);
  }
  return out;
}

/// Mean over a window that is a fortieth of the curve, centred, so that it does not lag.
std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points) {
  const auto count = static_cast<std::ptrdiff_t>(points.size());
  const std::ptrdiff_t reach = count / 80;
  std::vector<ChartPoint> out;
  for (std::ptrdiff_t at = 0; at < count; ++at) {
    const std::ptrdiff_t near = std::min({reach, at, count - 1 - at});
    double sum = 0;
    for (std::ptrdiff_t other = at - near; other <= at + near; ++other) {
      sum += points[static_cast<std::size_t>(other)].value;
    }
    out.push_back({points[static_cast<std::size_t>(at)].step, sum / static_cast<double>(2 * near + 1)});
  }
  return out;
}

class LossChart {
 public:
  LossChart(const std::vector<ChartPoint>& training, const std::vector<ChartPoint>& validation) {
    std::vector<ChartPoint> all = training;
    all.insert(all.end(), validation.begin(), validation.end());
    const auto [low, high] = std::ranges::minmax(all, {}, &ChartPoint::value);
    low_ = std::log10(low.value);
    high_ = std::max(std::log10(high.value), low_ + 0.1);
    last_step_ = std::max(1.0, std::ranges::max(all, {}, &ChartPoint::step).step);
  }

  [[nodiscard]] std::string axes() const {
    std::string out;
    for (double power = std::floor(low_); power <= high_; ++power) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double value = factor * std::pow(10.0, power);
        if (std::log10(value) < low_ || std::log10(value) > high_) continue;
        if (factor > 1.0 && high_ - low_ > 3.0) continue;
        out += line(left, y(value), right, y(value), "grid") + text_at(left - 8, y(value) + 4, "end", shortened(value));
      }
    }
    const double distance = tick_distance(last_step_, 8);
    for (double step = 0; step <= last_step_; step += distance) {
      out += text_at(x(step), bottom + 22, "middle", shortened(step));
    }
    return out + line(left, bottom, right, bottom, "axis");
  }

  [[nodiscard]] std::string curve(const std::vector<ChartPoint>& points, std::string_view kind) const {
    std::string out = "<polyline class=\"" + std::string(kind) + "\" points=\"";
    for (const ChartPoint& point : points) out += fixed(x(point.step), 1) + "," + fixed(y(point.value), 1) + " ";
    return out + "\"/>";
  }

  [[nodiscard]] std::string dots(const std::vector<ChartPoint>& points) const {
    std::string out;
    for (const ChartPoint& point : points) {
      out += "<circle class=\"dot\" cx=\"" + fixed(x(point.step), 1) + "\" cy=\"" + fixed(y(point.value), 1) +
             "\" r=\"5\"><title>validation after step " + shortened(point.step) + ": " + shortened(point.value) +
             "</title></circle>";
    }
    return out;
  }

 private:
  static constexpr double left = 64, right = chart_width - 16, top = 12, bottom = 268;
  [[nodiscard]] double x(double step) const { return left + (right - left) * step / last_step_; }
  [[nodiscard]] double y(double value) const {
    return bottom - (bottom - top) * (std::log10(value) - low_) / (high_ - low_);
  }

  double low_ = 0;  // logarithms of the values shown
  double high_ = 0;
  double last_step_ = 1;
};

std::string_view class_of(TimelinePass pass) {
  constexpr std::array<std::string_view, 4> names{"p-forward", "p-backward", "p-both", "p-step"};
  return names[static_cast<std::size_t>(pass)];
}

std::string_view words_for(TimelinePass pass) {
  constexpr std::array<std::string_view, 4> names{"forward", "backward", "forward and backward", "step"};
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
      out += line(x(ms), top - 4, x(ms), bottom_, "grid") +
             text_at(x(ms), bottom_ + 20, "middle", shortened(ms) + (ms == 0 ? " ms" : ""));
    }
    for (std::size_t lane = 0; lane < timeline_.lanes.size(); ++lane) {
      out += text_at(left - 10, y(lane) + 13, "end", timeline_.lanes[lane].track) + "<g class=\"faint\">" +
             text_at(left - 10, y(lane) + 27, "end", timeline_.lanes[lane].device) + "</g>";
    }
    return out;
  }

  /// Where each step's first pass begins.
  [[nodiscard]] std::string steps() const {
    std::string out;
    for (std::int64_t step = timeline_.first_step; step <= timeline_.last_step; ++step) {
      const auto first = std::ranges::find(timeline_.slices, step, &TimelineSlice::step);
      if (first == timeline_.slices.end()) continue;
      out += line(x(first->begin_ms), top - 8, x(first->begin_ms), bottom_, "begin") +
             text_at(x(first->begin_ms) + 4, top - 12, "start", "step " + std::to_string(step));
    }
    return out;
  }

  [[nodiscard]] std::string slices() const {
    std::string out;
    for (const TimelineSlice& slice : timeline_.slices) {
      const TimelineLane& lane = timeline_.lanes[slice.lane];
      const auto section = std::ranges::find(sections_, lane.section) - sections_.begin();
      const double width = std::max(least_width, x(slice.begin_ms + slice.length_ms) - x(slice.begin_ms));
      out += "<rect class=\"s" + std::to_string(section) + " " + std::string(class_of(slice.pass)) + "\" x=\"" +
             fixed(x(slice.begin_ms), 2) + "\" y=\"" + fixed(y(slice.lane) + 4, 1) + "\" width=\"" + fixed(width, 2) +
             "\" height=\"26\"><title>" + escaped(lane.track) + " " + std::string(words_for(slice.pass)) + ", step " +
             std::to_string(slice.step) + ": " + fixed(slice.length_ms, 2) + " ms</title></rect>";
    }
    return out;
  }

 private:
  static constexpr double left = 116, right = chart_width - 16, top = 26, lane_height = 38, least_width = 0.6;
  [[nodiscard]] double x(double ms) const { return left + (right - left) * ms / end_ms_; }
  [[nodiscard]] double y(std::size_t lane) const { return top + lane_height * static_cast<double>(lane); }

  const Timeline& timeline_;
  std::vector<std::string> sections_;
  double bottom_;
  double end_ms_ = 1e-6;
};

std::vector<ChartPoint> positive(std::vector<ChartPoint> points) {
  std::erase_if(points, [](const ChartPoint& point) { return !(point.value > 0) || !std::isfinite(point.value); });
  return points;
}

}  // namespace

std::vector<std::string> sections_of(const Timeline& timeline) {
  std::vector<std::string> sections;
  for (const TimelineLane& lane : timeline.lanes) {
    if (std::ranges::find(sections, lane.section) == sections.end()) sections.push_back(lane.section);
  }
  return sections;
}

std::string loss_chart(const std::vector<ChartPoint>& training, const std::vector<ChartPoint>& validation) {
  constexpr std::size_t most_points = 600;
  const std::vector<ChartPoint> curve = thinned(positive(training), most_points), dots = positive(validation);
  if (curve.empty()) return "";
  const LossChart chart(curve, dots);
  return opened(300, "loss over the steps") + chart.axes() + chart.curve(curve, "raw") +
         chart.curve(smoothed(curve), "mean") + chart.dots(dots) + "</svg>";
}

std::string timeline_chart(const Timeline& timeline) {
  if (timeline.slices.empty()) return "";
  const LaneChart chart(timeline);
  return opened(chart.height(), "what every lane did, over time") + chart.axes() + chart.steps() + chart.slices() +
         "</svg>";
}

}  // namespace maestro
