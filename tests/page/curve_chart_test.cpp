// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/curve_chart.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "tests/page/count_of.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;
using testing::Not;

ChartLine line_of(const std::string& label, const std::vector<double>& values) {
  ThinnedCurve curve;
  std::uint64_t step = 0;
  for (const double value : values) curve.add(++step, value);
  return {label, 0, curve.points(), {}};
}

CurveChart chart_of(const std::vector<double>& values) {
  CurveChart chart;
  chart.label = "loss";
  chart.lines = {line_of("student", values)};
  return chart;
}

std::string attribute(const std::string& text, const std::string& name) {
  const auto begin = text.find(" " + name + "=\"");
  if (begin == std::string::npos) return "";
  const auto from = begin + name.size() + 3;
  return text.substr(from, text.find('"', from) - from);
}

std::vector<double> numbers_of(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::istringstream in(text);
  std::vector<double> out;
  for (double number = 0; in >> number;) out.push_back(number);
  return out;
}

/// Returns the values of a drawing's first line, computed from its coordinates.
std::vector<double> drawn_values(const std::string& drawing) {
  const std::vector<double> edges = numbers_of(attribute(drawing, "data-y"));
  const bool logarithmic = attribute(drawing, "data-scale") == "log";
  const auto scaled = [&](double value) { return logarithmic ? std::log10(value) : value; };
  const std::vector<double> places = numbers_of(attribute(drawing, "points"));
  std::vector<double> out;
  for (std::size_t at = 1; at < places.size(); at += 2) {
    const double share = (places[at] - edges[0]) / (edges[1] - edges[0]);
    const double value = scaled(edges[2]) + share * (scaled(edges[3]) - scaled(edges[2]));
    out.push_back(logarithmic ? std::pow(10, value) : value);
  }
  return out;
}

TEST(CurveChart, is_left_out_without_a_value) {
  EXPECT_EQ(curve_chart(CurveChart{}), "");
  CurveChart chart = chart_of({});
  chart.lines[0].dots = {{3, std::numeric_limits<double>::quiet_NaN(), ""}};
  EXPECT_EQ(curve_chart(chart), "");
}

TEST(CurveChart, has_its_values_where_its_edges_put_them) {  // CH-1
  for (const std::vector<double>& values :
       {std::vector<double>{5, 3, 2.5, 2.25}, {1e-5, 1e-3, 0.1}, {-2, 3, 0}, {7, 7}, {0, 0, 0}, {1e-300, 1e300}}) {
    const std::string drawing = curve_chart(chart_of(values));
    const std::vector<double> drawn = drawn_values(drawing);
    ASSERT_EQ(drawn.size(), values.size()) << drawing;
    const auto [low, high] = std::ranges::minmax(values);
    for (std::size_t at = 0; at < values.size(); ++at) {
      const bool logarithmic = attribute(drawing, "data-scale") == "log";
      const double tolerance = logarithmic ? values[at] * std::log(high / low) / 100 : std::max(high - low, 1e-2) / 100;
      EXPECT_NEAR(drawn[at], values[at], tolerance) << drawing;
    }
    EXPECT_THAT(drawing, Not(HasSubstr("nan")));
    EXPECT_THAT(drawing, Not(HasSubstr("inf")));
  }
  EXPECT_EQ(attribute(curve_chart(chart_of({5, 3, 2.5})), "data-scale"), "linear");
  EXPECT_EQ(attribute(curve_chart(chart_of({5, 3, 0.5})), "data-scale"), "log");
}

TEST(CurveChart, draws_one_point_as_a_dot) {
  EXPECT_EQ(count_of(curve_chart(chart_of({3.0})), "<circle"), 1u);
}

TEST(CurveChart, of_a_long_run_has_an_area_with_all_values) {
  std::vector<double> many(5000, 1.0);
  many[2500] = 4.0;
  CurveChart chart = chart_of(many);
  chart.lines[0].dots = {{5000, 2, "validation"}};
  const std::string drawing = curve_chart(chart);
  EXPECT_EQ(count_of(drawing, "<polygon"), 1u);
  EXPECT_EQ(count_of(drawing, "<circle"), 1u);
  EXPECT_LT(drawing.size(), 30'000u);
  const std::vector<double> values = drawn_values(drawing);
  EXPECT_NEAR(std::ranges::max(values), 4.0, 0.05) << "the extreme is there";
}

TEST(CurveChart, shows_shares_in_percent_of_the_whole) {
  CurveChart chart = chart_of({0.25, 0.5});
  chart.shares = true;
  const std::string drawing = curve_chart(chart);
  EXPECT_THAT(drawing, HasSubstr(">0%<"));
  EXPECT_THAT(drawing, HasSubstr(">100%<"));
}

TEST(CurveChart, escapes_its_texts) {
  CurveChart chart = chart_of({1, 2});
  chart.label = "<a>";
  chart.lines[0].label = "\"b\"";
  chart.lines[0].dots = {{1, 1, "<c>"}};
  const std::string drawing = curve_chart(chart);
  for (const char* raw : {"<a>", "\"b\"", "<c>"}) EXPECT_THAT(drawing, Not(HasSubstr(raw)));
}

}  // namespace
}  // namespace maestro
