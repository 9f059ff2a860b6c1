// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/curve_chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "runtime/core/printable.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/page/svg.hpp"

namespace maestro {

namespace {

constexpr double far_apart = 8;  // least ratio of highest to lowest value for a logarithmic scale

struct Place {
  double step = 0;
  double value = 0;
};

/// Returns means over a window of a fortieth of the curve, centred, so that they do not lag.
std::vector<Place> smoothed(const std::vector<CurvePoint>& points) {
  const auto count = static_cast<std::ptrdiff_t>(points.size());
  const std::ptrdiff_t reach = count / 80;
  std::vector<Place> out;
  for (std::ptrdiff_t at = 0; at < count; ++at) {
    const std::ptrdiff_t near = std::min({reach, at, count - 1 - at});
    double sum = 0, values = 0;
    for (std::ptrdiff_t other = at - near; other <= at + near; ++other) {
      sum += points[static_cast<std::size_t>(other)].sum;
      values += static_cast<double>(points[static_cast<std::size_t>(other)].count);
    }
    out.push_back({points[static_cast<std::size_t>(at)].step(), sum / values});
  }
  return out;
}

class CurveDrawing {
 public:
  explicit CurveDrawing(const CurveChart& chart) : chart_(chart), right_(chart.width - 20), bottom_(chart.height - 28) {
    for (const ChartLine& line : chart.lines) {
      for (const CurvePoint& point : line.points) {
        include(static_cast<double>(point.last_step), point.low);
        include(static_cast<double>(point.last_step), point.high);
      }
      for (const ChartDot& dot : line.dots) include(dot.step, dot.value);
    }
    if (empty()) return;
    if (chart.shares) low_ = 0, high_ = std::max(high_, 1.0);
    logarithmic_ = !chart.shares && !chart.linear && low_ > 0 && high_ / low_ >= far_apart;
    if (!logarithmic_ && !chart.shares) widen();
  }

  [[nodiscard]] bool empty() const { return high_ < low_; }

  [[nodiscard]] std::string drawn() const {
    std::string out = svg_opened(chart_.width, chart_.height, chart_.label, attributes()) + axes();
    for (const ChartLine& line : chart_.lines) out += range(line);
    for (const ChartLine& line : chart_.lines) out += means(line) + dots(line);
    return out + "</svg>";
  }

 private:
  static constexpr double left = 66, top = 10;

  void include(double step, double value) {
    if (!std::isfinite(value)) return;
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
    last_step_ = std::max(last_step_, step);
  }

  /// Keeps lines off the edges, and ticks apart if values hardly differ.
  void widen() {
    const double span = high_ - low_, least = high_ == 0 ? 1 : std::abs(high_) * 0.01;
    const double margin = span > 0 ? std::max(span * 0.04, (least - span) / 2) : least / 2;
    low_ -= margin;
    high_ += margin;
  }

  [[nodiscard]] double scaled(double value) const { return logarithmic_ ? std::log10(value) : value; }
  [[nodiscard]] double x(double step) const { return left + (right_ - left) * step / last_step_; }
  [[nodiscard]] double y(double value) const {
    return bottom_ - (bottom_ - top) * (scaled(value) - scaled(low_)) / (scaled(high_) - scaled(low_));
  }
  [[nodiscard]] std::string place(double step, double value) const {
    return fixed(x(step), 1) + "," + fixed(y(value), 1) + " ";
  }

  [[nodiscard]] std::string attributes() const {
    return " data-chart=\"" + escaped(chart_.label) + "\" data-scale=\"" + (logarithmic_ ? "log" : "linear") +
           "\" data-x=\"" + fixed(left, 1) + " " + fixed(right_, 1) + " 0 " + number_text(last_step_) + "\" data-y=\"" +
           fixed(bottom_, 1) + " " + fixed(top, 1) + " " + number_text(low_) + " " + number_text(high_) + "\"";
  }

  [[nodiscard]] std::string tick(double value) const {
    const std::string text = chart_.shares ? percent(value, 0) : shortened(value);
    return svg_line(left, y(value), right_, y(value), "grid") + svg_text(left - 6, y(value) + 4, "end", text);
  }

  [[nodiscard]] std::string axes() const {
    std::string out;
    if (logarithmic_) {
      const double decades = std::log10(high_ / low_);
      const double every = decades > 6 ? std::ceil(decades / 6) : 1;
      for (double power = std::floor(std::log10(low_)); power <= std::log10(high_); power += every) {
        for (const double factor : {1.0, 2.0, 5.0}) {
          const double value = factor * std::pow(10.0, power);
          if (value < low_ || value > high_ || (factor > 1 && decades > 2)) continue;
          out += tick(value);
        }
      }
    } else {
      const double distance = tick_distance(high_ - low_, 5);
      for (double at = std::ceil(low_ / distance); at * distance <= high_; ++at)
        out += tick(at * distance + 0.0);  // no -0
    }
    const double distance = std::max(1.0, tick_distance(last_step_, 5));
    for (double step = 0; step <= last_step_; step += distance) {
      const bool at_edge = x(step) > right_ - 12;  // there the label's right half would be cut off
      out += svg_text(at_edge ? right_ + 8 : x(step), bottom_ + 18, at_edge ? "end" : "middle", fixed(step, 0));
    }
    return out + svg_line(left, bottom_, right_, bottom_, "axis");
  }

  [[nodiscard]] static std::string kind(const ChartLine& line, std::string_view name) {
    return "class=\"s" + std::to_string(line.colour) + " " + std::string(name) + "\" data-line=\"" +
           escaped(line.label) + "\"";
  }

  /// Returns all values of the line: as an area if points stand for several.
  [[nodiscard]] std::string range(const ChartLine& line) const {
    if (line.points.size() < 2) return "";
    const bool several = std::ranges::any_of(line.points, [](const CurvePoint& point) { return point.count > 1; });
    std::string places;
    for (const CurvePoint& point : line.points) places += place(point.step(), point.high);
    if (!several) return "<polyline " + kind(line, "raw") + " points=\"" + places + "\"/>";
    for (auto point = line.points.rbegin(); point != line.points.rend(); ++point) {
      places += place(point->step(), point->low);
    }
    return "<polygon " + kind(line, "band") + " points=\"" + places + "\"/>";
  }

  [[nodiscard]] std::string means(const ChartLine& line) const {
    if (line.points.empty()) return "";
    if (line.points.size() == 1) return circle(line, {line.points[0].step(), line.points[0].mean(), ""}, "2.5");
    std::string out = "<polyline " + kind(line, "mean") + " points=\"";
    for (const Place& at : smoothed(line.points)) out += place(at.step, at.value);
    return out + "\"/>";
  }

  [[nodiscard]] std::string dots(const ChartLine& line) const {
    std::string out;
    for (const ChartDot& dot : line.dots) {
      if (std::isfinite(dot.value)) out += circle(line, dot, line.dots.size() > 30 ? "2" : "4");
    }
    return out;
  }

  [[nodiscard]] std::string circle(const ChartLine& line, const ChartDot& dot, std::string_view radius) const {
    return "<circle " + kind(line, "dot") + " cx=\"" + fixed(x(dot.step), 1) + "\" cy=\"" + fixed(y(dot.value), 1) +
           "\" r=\"" + std::string(radius) + "\"><title>" + escaped(dot.title) + "</title></circle>";
  }

  const CurveChart& chart_;
  double right_, bottom_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  double last_step_ = 1;
  bool logarithmic_ = false;
};

}  // namespace

std::string curve_chart(const CurveChart& chart) {
  const CurveDrawing drawing(chart);
  return drawing.empty() ? "" : drawing.drawn();
}

}  // namespace maestro
