// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/graph_chart.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "count_of.hpp"

namespace maestro {
namespace {

struct Rect {
  double left = 0, top = 0, right = 0, bottom = 0;
};

std::vector<Rect> rects_of(const std::string& svg) {
  const std::regex pattern(R"re(<rect x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="([0-9.]+)")re");
  std::vector<Rect> rects;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at) {
    const double left = std::stod((*at)[1]), top = std::stod((*at)[2]);
    rects.push_back({left, top, left + std::stod((*at)[3]), top + std::stod((*at)[4])});
  }
  return rects;
}

struct Line {
  double left = 0, right = 0, y = 0;
};

/// Returns the straight parts of arrows, which cross columns.
std::vector<Line> lines_of(const std::string& svg) {
  const std::regex pattern(R"re(([0-9.]+) ([0-9.]+) H([0-9.]+))re");
  std::vector<Line> lines;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at) {
    lines.push_back({std::stod((*at)[1]), std::stod((*at)[3]), std::stod((*at)[2])});
  }
  return lines;
}

/// Returns a drawing of a corpus that feeds all sections in a chain of three.
GraphDrawing chain() {
  GraphDrawing drawing;
  drawing.label = "a chain";
  drawing.both_ways = "there and back";
  drawing.boxes = {{"corpus", {"source"}, {}, {"tokens", "targets"}},
                   {"first", {}, {"tokens"}, {"out"}},
                   {"second", {"a line that is longer than the title"}, {"in"}, {"out"}},
                   {"third", {}, {"tokens", "in", "targets"}, {}}};
  drawing.arrows = {{0, 0, 1, 0}, {1, 0, 2, 0}, {2, 0, 3, 1}, {0, 0, 3, 0}, {0, 1, 3, 2}};
  return drawing;
}

TEST(GraphChart, arrows_lead_to_the_right) {  // GH-1
  const GraphDrawing drawing = chain();
  const std::vector<Rect> rects = rects_of(graph_chart(drawing));
  ASSERT_EQ(rects.size(), drawing.boxes.size());
  for (const GraphArrow& arrow : drawing.arrows) EXPECT_LT(rects[arrow.from].right, rects[arrow.to].left);
}

TEST(GraphChart, arrows_across_a_column_touch_no_box_and_no_other_arrow) {  // GH-2
  const std::string svg = graph_chart(chain());
  const std::vector<Line> lines = lines_of(svg);
  ASSERT_EQ(lines.size(), 4u);  // two arrows that cross the columns of first and second
  for (std::size_t at = 0; at < lines.size(); ++at) {
    for (const Rect& rect : rects_of(svg)) {
      const bool beside = lines[at].right <= rect.left || lines[at].left >= rect.right;
      EXPECT_TRUE(beside || lines[at].y < rect.top || lines[at].y > rect.bottom) << lines[at].y;
    }
    for (std::size_t other = 0; other < at; ++other) {
      EXPECT_TRUE(lines[at].left != lines[other].left || lines[at].y != lines[other].y);
    }
  }
}

TEST(GraphChart, everything_lies_in_the_drawing) {
  const std::string svg = graph_chart(chain());
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"re(width="([0-9]+)" height="([0-9]+)">)re")));
  for (const Rect& rect : rects_of(svg)) {
    EXPECT_LT(rect.right, std::stod(size[1]));
    EXPECT_LT(rect.bottom, std::stod(size[2]));
  }
  for (const Line& line : lines_of(svg)) EXPECT_LT(line.y, std::stod(size[2]));
}

TEST(GraphChart, two_way_arrows_are_explained_where_there_are_any) {
  GraphDrawing drawing = chain();
  EXPECT_EQ(count_of(graph_chart(drawing), "there and back"), 0u);
  drawing.arrows[1].both_ways = true;
  const std::string svg = graph_chart(drawing);
  EXPECT_EQ(count_of(svg, "there and back"), 1u);
  EXPECT_EQ(count_of(svg, "class=\"both\" marker-start"), 2u);  // the arrow and its explanation
}

TEST(GraphChart, text_is_escaped) {
  GraphDrawing drawing = chain();
  drawing.label = drawing.boxes[0].title = drawing.boxes[0].lines[0] = drawing.arrows[0].label = "<a> & \"b\"";
  drawing.boxes[1].inputs[0] = drawing.boxes[1].outputs[0] = "<a> & \"b\"";
  const std::string svg = graph_chart(drawing);
  EXPECT_EQ(count_of(svg, "<a>"), 0u);
  EXPECT_EQ(count_of(svg, "&lt;a&gt; &amp; &quot;b&quot;"), 6u);
}

TEST(GraphChart, a_graph_without_boxes_is_an_empty_drawing) {
  const std::string svg = graph_chart({});
  EXPECT_TRUE(rects_of(svg).empty());
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace maestro
