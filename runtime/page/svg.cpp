// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/svg.hpp"

#include <cmath>

#include "runtime/page/markup.hpp"

namespace maestro {

std::string svg_opened(double width, double height, std::string_view label, std::string_view attributes) {
  return "<svg viewBox=\"0 0 " + fixed(width, 0) + " " + fixed(height, 0) + "\" role=\"img\" aria-label=\"" +
         escaped(label) + "\"" + std::string(attributes) + ">";
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  return "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + std::string(anchor) + "\">" +
         escaped(text) + "</text>";
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" +
         fixed(x2, 1) + "\" y2=\"" + fixed(y2, 1) + "\"/>";
}

double tick_distance(double span, double wanted) {
  const double least = span / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10.0 * power;
}

}  // namespace maestro
