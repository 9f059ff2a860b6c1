// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/graph_chart.hpp"

#include <algorithm>
#include <string_view>

#include "runtime/page/markup.hpp"
#include "runtime/page/svg.hpp"

namespace maestro {

namespace {

constexpr std::string_view style = R"(<style>
svg { color-scheme: light dark; --ground: #fbfbfa; --card: #ffffff; --ink: #1d2024; --faint: #626a73; --rule: #b9bfc6;
  --accent: #2f6fd0; background: var(--ground); font: 13px system-ui, "Liberation Sans", sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ground: #15171a; --card: #1e2125; --ink: #e7e9ec; --faint: #9aa3ad;
  --rule: #4a515a; --accent: #7aa9f2; } }
text { fill: var(--ink); } .faint text { fill: var(--faint); } .title text { font-weight: 600; font-size: 14px; }
rect { fill: var(--card); stroke: var(--rule); } line { stroke: var(--rule); }
path { fill: none; stroke: var(--faint); stroke-width: 1.5; } .both { stroke: var(--accent); stroke-width: 2; }
.head { fill: var(--faint); stroke: none; } .both-head { fill: var(--accent); stroke: none; }
</style>
)";

constexpr double margin = 16, gap = 64, between = 20, padding = 10, row = 19, letter = 7.3;
constexpr double way_height = 10;  // height of an arrow in a column that it crosses

struct Point {
  double x = 0;
  double y = 0;
};

std::string text_of(Point at) {
  return fixed(at.x, 1) + " " + fixed(at.y, 1);
}

std::string marker(std::string_view name) {
  return "<marker id=\"" + std::string(name) +
         "\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
         "markerUnits=\"userSpaceOnUse\" "
         "orient=\"auto-start-reverse\"><path class=\"" +
         std::string(name) + "\" d=\"M0 0 L8 4 L0 8 z\"/></marker>";
}

std::string curve_to(Point from, Point to) {
  const double half = (to.x - from.x) / 2;
  return " C" + text_of({from.x + half, from.y}) + " " + text_of({to.x - half, to.y}) + " " + text_of(to);
}

/// An item in a column: a box, or an arrow that crosses it.
struct Item {
  bool is_box = true;
  std::size_t index = 0;  ///< index of the box or the arrow
  double wanted = 0;      ///< mean height of the incoming arrows
};

class Columns {
 public:
  explicit Columns(const GraphDrawing& drawing)
      : drawing_(drawing), tops_(drawing.boxes.size()), ways_(drawing.arrows.size()) {
    find_columns();
    for (std::size_t at = 0; at < columns_.size(); ++at) {
      begin_column(at);
      stack(at);
    }
  }

  [[nodiscard]] double width() const { return rights_.empty() ? 2 * margin : rights_.back() + margin; }
  [[nodiscard]] double height() const { return bottom_ + 2 * margin; }

  [[nodiscard]] std::string boxes() const {
    std::string out;
    for (std::size_t at = 0; at < drawing_.boxes.size(); ++at) out += box(at);
    return out;
  }

  [[nodiscard]] std::string arrows() const {
    std::string out;
    for (std::size_t at = 0; at < drawing_.arrows.size(); ++at) out += arrow(at);
    return out;
  }

 private:
  static std::size_t letters_of(const GraphBox& box) {
    std::size_t most = box.title.size() + 1;  // it is bold
    for (const std::string& line : box.lines) most = std::max(most, line.size());
    for (std::size_t at = 0; at < std::max(box.inputs.size(), box.outputs.size()); ++at) {
      const std::size_t left = at < box.inputs.size() ? box.inputs[at].size() : 0;
      const std::size_t right = at < box.outputs.size() ? box.outputs[at].size() : 0;
      most = std::max(most, left + right + 3);
    }
    return most;
  }

  static double ports_below(const GraphBox& box) { return padding + row * static_cast<double>(1 + box.lines.size()); }

  static double height_of(const GraphBox& box) {
    const std::size_t ports = std::max(box.inputs.size(), box.outputs.size());
    return ports_below(box) + row * static_cast<double>(ports) + padding;
  }

  void find_columns() {
    column_of_.assign(drawing_.boxes.size(), 0);
    for (std::size_t round = 0; round < drawing_.boxes.size(); ++round) {
      for (const GraphArrow& each : drawing_.arrows) {
        column_of_[each.to] = std::max(column_of_[each.to], column_of_[each.from] + 1);
      }
    }
    for (const std::size_t column : column_of_) columns_.resize(std::max(columns_.size(), column + 1));
    for (std::size_t at = 0; at < column_of_.size(); ++at) columns_[column_of_[at]].push_back({true, at});
    for (std::size_t at = 0; at < drawing_.arrows.size(); ++at) {
      const GraphArrow& each = drawing_.arrows[at];
      for (std::size_t column = column_of_[each.from] + 1; column < column_of_[each.to]; ++column) {
        columns_[column].push_back({false, at});
      }
    }
  }

  /// Returns the height of an arrow as it leaves the column before `column`.
  [[nodiscard]] double height_before(std::size_t arrow, std::size_t column) const {
    const GraphArrow& each = drawing_.arrows[arrow];
    const std::size_t crossed = column - column_of_[each.from] - 1;
    return crossed == 0 ? output(each).y : ways_[arrow][crossed - 1];
  }

  [[nodiscard]] double wanted_by_box(std::size_t box, std::size_t column) const {
    double sum = 0, count = 0;
    for (std::size_t at = 0; at < drawing_.arrows.size(); ++at) {
      if (drawing_.arrows[at].to != box) continue;
      sum += height_before(at, column);
      ++count;
    }
    return count > 0 ? sum / count : 0;
  }

  void begin_column(std::size_t column) {
    std::size_t letters = 0;
    for (const Item& item : columns_[column]) {
      if (item.is_box) letters = std::max(letters, letters_of(drawing_.boxes[item.index]));
    }
    lefts_.push_back(column == 0 ? margin : rights_.back() + gap);
    rights_.push_back(lefts_.back() + 2 * padding + letter * static_cast<double>(letters));
  }

  /// Stacks a column, ordered by the heights of incoming arrows.
  void stack(std::size_t column) {
    for (Item& item : columns_[column]) {
      item.wanted = item.is_box ? wanted_by_box(item.index, column) : height_before(item.index, column);
    }
    std::ranges::stable_sort(columns_[column], {}, &Item::wanted);
    double top = margin;
    for (const Item& item : columns_[column]) {
      if (item.is_box) {
        tops_[item.index] = top;
      } else {
        ways_[item.index].push_back(top + way_height / 2);
      }
      top += item.is_box ? height_of(drawing_.boxes[item.index]) : way_height;
      bottom_ = std::max(bottom_, top);
      top += between;
    }
  }

  [[nodiscard]] double port_height(std::size_t box, std::size_t port) const {
    return tops_[box] + ports_below(drawing_.boxes[box]) + row * (static_cast<double>(port) + 0.5);
  }
  [[nodiscard]] Point output(const GraphArrow& at) const {
    return {rights_[column_of_[at.from]], port_height(at.from, at.output)};
  }

  [[nodiscard]] std::string box(std::size_t index) const {
    const GraphBox& box = drawing_.boxes[index];
    const double left = lefts_[column_of_[index]], right = rights_[column_of_[index]], top = tops_[index];
    std::string out = "<rect x=\"" + fixed(left, 1) + "\" y=\"" + fixed(top, 1) + "\" width=\"" +
                      fixed(right - left, 1) + "\" height=\"" + fixed(height_of(box), 1) +
                      "\" rx=\"6\"/><g class=\"title\">" +
                      svg_text(left + padding, top + padding + 10, "start", box.title) + "</g><g class=\"faint\">";
    for (std::size_t at = 0; at < box.lines.size(); ++at) {
      out += svg_text(left + padding, top + padding + 10 + row * static_cast<double>(at + 1), "start", box.lines[at]);
    }
    out += "</g>";
    for (std::size_t at = 0; at < box.inputs.size(); ++at) {
      out += svg_text(left + padding, port_height(index, at) + 4, "start", box.inputs[at]);
    }
    for (std::size_t at = 0; at < box.outputs.size(); ++at) {
      out += svg_text(right - padding, port_height(index, at) + 4, "end", box.outputs[at]);
    }
    return out + "\n";
  }

  [[nodiscard]] std::string arrow(std::size_t index) const {
    const GraphArrow& each = drawing_.arrows[index];
    Point at = output(each);
    std::string line = "M" + text_of(at);
    for (std::size_t crossed = 0; crossed < ways_[index].size(); ++crossed) {
      const std::size_t column = column_of_[each.from] + crossed + 1;
      line += curve_to(at, {lefts_[column], ways_[index][crossed]}) + " H" + fixed(rights_[column], 1);
      at = {rights_[column], ways_[index][crossed]};
    }
    line += curve_to(at, {lefts_[column_of_[each.to]], port_height(each.to, each.input)});
    const std::string ends = each.both_ways
                                 ? "class=\"both\" marker-start=\"url(#both-head)\" marker-end=\"url(#both-head)\""
                                 : "marker-end=\"url(#head)\"";
    return "<path " + ends + " d=\"" + line + "\"><title>" + escaped(each.label) + "</title></path>\n";
  }

  const GraphDrawing& drawing_;
  std::vector<std::size_t> column_of_;      // by box
  std::vector<std::vector<Item>> columns_;  // from top to bottom
  std::vector<double> tops_;                // by box
  std::vector<std::vector<double>> ways_;   // by arrow: height in each crossed column
  std::vector<double> lefts_, rights_;      // by column
  double bottom_ = margin;
};

}  // namespace

std::string graph_chart(const GraphDrawing& drawing) {
  const Columns columns(drawing);
  const bool explains = std::ranges::any_of(drawing.arrows, &GraphArrow::both_ways);
  const double width = columns.width(), height = columns.height() + (explains ? row : 0);
  std::string out = svg_opened(
      width, height, drawing.label,
      " xmlns=\"http://www.w3.org/2000/svg\" width=\"" + fixed(width, 0) + "\" height=\"" + fixed(height, 0) + "\"");
  out += std::string(style) + "<defs>" + marker("head") + marker("both-head") + "</defs>\n" + columns.boxes() +
         columns.arrows();
  if (explains) {
    const double base = height - margin;
    out += "<path class=\"both\" marker-start=\"url(#both-head)\" marker-end=\"url(#both-head)\" d=\"M" +
           text_of({margin, base - 4}) + " H" + fixed(margin + 36, 1) + "\"/><g class=\"faint\">" +
           svg_text(margin + 46, base, "start", drawing.both_ways) + "</g>\n";
  }
  return out + "</svg>\n";
}

}  // namespace maestro
