// SPDX-License-Identifier: Apache-2.0
// Curves over the steps as inline SVG. Pure; any thread.
//
// CH-1 (readable by programs): `data-x` and `data-y` of the drawing have the edges of the plot and the values there,
//       and `data-scale` has linear or log, so that the drawn values can be computed from the coordinates.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/page/curve.hpp"

namespace maestro {

struct ChartDot {
  double step = 0;
  double value = 0;
  std::string title;  ///< shown under the pointer
};

struct ChartLine {
  std::string label;
  std::size_t colour = 0;  ///< class s0, s1, ...
  std::vector<CurvePoint> points;
  std::vector<ChartDot> dots;
};

struct CurveChart {
  std::string label;    ///< what is drawn
  bool shares = false;  ///< values from 0 to 1, shown in percent
  bool linear = false;  ///< never a logarithmic scale
  double width = 480;
  double height = 240;
  std::vector<ChartLine> lines;
};

inline constexpr std::size_t chart_colours = 8;  ///< further lines repeat the first colours

/// Returns the lines with the range of the values that a point stands for, and as moving means; empty without a finite
/// value. The scale is logarithmic where the values are positive and far apart.
[[nodiscard]] std::string curve_chart(const CurveChart& chart);

}  // namespace maestro
