// SPDX-License-Identifier: Apache-2.0
// A graph of boxes with ports as a stand-alone SVG drawing. Pure; any thread.
//
// GH-1 (left to right): a box is right of all boxes that have arrows to it, in the column of its longest path.
// GH-2 (free ways): an arrow runs between the boxes that it joins and crosses no other box: it has a separate row in
//       each column that it crosses.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace maestro {

struct GraphBox {
  std::string title;
  std::vector<std::string> lines;  ///< below the title
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

struct GraphArrow {
  std::size_t from = 0;    ///< a box
  std::size_t output = 0;  ///< index of an output of the box
  std::size_t to = 0;
  std::size_t input = 0;
  bool both_ways = false;
  std::string label = {};  ///< tooltip
};

struct GraphDrawing {
  std::string label;  ///< subject of the drawing
  std::vector<GraphBox> boxes;
  std::vector<GraphArrow> arrows;  ///< without a cycle
  std::string both_ways;           ///< meaning of an arrow that points both ways
};

/// Returns an SVG document, for light and dark, in the size at which its text is read.
[[nodiscard]] std::string graph_chart(const GraphDrawing& drawing);

}  // namespace maestro
