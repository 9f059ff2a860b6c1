// SPDX-License-Identifier: Apache-2.0
// Curves over the steps as inline SVG. Pure; any thread.
//
// CH-1 (readable by programs): the drawing's `data-x` and `data-y` have the edges of the plot and their values, and
//       `data-scale` is linear or log, so that the drawn values follow from the coordinates.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/page/curve.hpp"

namespace maestro {

struct ChartDot {
  double step = 0;
  double value = 0;
  std::string title;  ///< tooltip
};

struct ChartLine {
  std::string label;
  std::size_t colour = 0;  ///< class s0, s1, ...: a section's, or from other_colours on
  std::vector<CurvePoint> points;
  std::vector<ChartDot> dots;
};

struct CurveChart {
  std::string label;    ///< figure that is drawn
  bool shares = false;  ///< values from 0 to 1, shown in percent
  bool linear = false;  ///< never a logarithmic scale
  double width = 480;
  double height = 240;
  std::vector<ChartLine> lines;
};

inline constexpr std::size_t chart_colours = 8;              ///< colours of sections; further ones repeat the first
inline constexpr std::size_t other_colours = chart_colours;  ///< first of three colours that no section has

/// Returns the lines with the value range of each point, and as moving means; empty without a finite value. The scale
/// is logarithmic if the values are positive and far apart.
[[nodiscard]] std::string curve_chart(const CurveChart& chart);

}  // namespace maestro
