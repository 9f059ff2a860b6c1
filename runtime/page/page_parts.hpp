// SPDX-License-Identifier: Apache-2.0
// The parts that pages have in common, as HTML: frame and style sheet, figures, answers, charts. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/page/timeline.hpp"

namespace maestro {

struct PageFigure {
  std::string name;
  std::string value;
  std::string remark;      ///< may be empty
  std::string exact = {};  ///< the value without rounding, for programs; may be empty
};

struct PageImage {
  std::string png;        ///< the bytes of a PNG file
  bool enlarged = false;  ///< few pixels, to be shown as squares
};

/// A question of the validation set, with the model's answer.
struct PageAnswer {
  std::vector<PageImage> pictures;
  std::string question;
  std::string reference;
  std::string written;
  [[nodiscard]] bool right() const { return written == reference; }
};

struct ChartHeading {
  std::string title;
  std::string remark;  ///< may be empty
};

/// Returns the document around `body`, which becomes the content of <main id="page">. `head` is appended to <head>;
/// both are HTML. The style sheet is for light and dark and for any width. Without `head` the page forbids the browser
/// every request and every script.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view body, std::string_view head = {});

/// Returns a list of figures; nothing for none.
[[nodiscard]] std::string figures_part(const std::vector<PageFigure>& all);

/// Returns the answers with their images inside the text; nothing for none.
[[nodiscard]] std::string answers_part(const std::vector<PageAnswer>& answers);

/// Returns a chart, SVG, under its heading; `legend`: <li> elements.
[[nodiscard]] std::string chart_part(const ChartHeading& heading, std::string_view chart, std::string_view legend);

/// Returns a small chart under its title; nothing without a drawing.
[[nodiscard]] std::string plot_part(std::string_view title, std::string_view drawing);
/// Returns small charts under their heading and legend.
[[nodiscard]] std::string plots_part(const ChartHeading& heading, std::string_view plots, std::string_view legend);
/// Returns a legend's entry for a line with the colour of this number.
[[nodiscard]] std::string line_entry(std::size_t colour, std::string_view name);

/// Returns the chart of a timeline with its legend; nothing without slices.
[[nodiscard]] std::string timeline_part(const Timeline& timeline);

}  // namespace maestro
