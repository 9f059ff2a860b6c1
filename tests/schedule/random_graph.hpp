// Random section graphs: a source, then sections that read it and sections before them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro::testing {

using Generator = std::mt19937_64;

/// In [low, high].
inline std::int64_t draw(Generator& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

struct GraphLimits {
  std::int64_t sections = 4;  ///< behind the source
  std::int64_t replicas = 3;
  std::int64_t micro_batch = 5;
  std::int64_t max_in_flight = 3;
};

/// Section 0 is the source "s0". Every other one has an input "iK" for some sections sK before it, at least one, and
/// the output "out"; every port is f32 with one column. Trained sections have at least one trained successor or none.
inline SectionGraph random_graph(Generator& random, const GraphLimits& limits, std::int64_t source_batch) {
  SectionGraph graph;
  const std::int64_t count = draw(random, 1, limits.sections);
  for (std::int64_t index = 0; index <= count; ++index) {
    GraphNode node;
    node.name = "s" + std::to_string(index);
    node.mode = index == 0 ? Mode::source : random() % 2 == 0 ? Mode::forward_only : Mode::forward_backward;
    if (index == count) node.mode = Mode::forward_backward;
    node.replicas = index == 0 ? 1 : draw(random, 1, limits.replicas);
    node.micro_batch = index == 0 ? source_batch : draw(random, 1, limits.micro_batch);
    node.max_in_flight = draw(random, 1, limits.max_in_flight);
    std::vector<std::int64_t> producers;
    for (std::int64_t before = 0; before < index; ++before) {
      if (random() % 2 == 0) producers.push_back(before);
    }
    if (index > 0 && producers.empty()) producers.push_back(draw(random, 0, index - 1));
    for (const std::int64_t producer : producers) {
      node.ports.inputs.push_back({"i" + std::to_string(producer), DType::f32, 1, true, false});
    }
    node.ports.outputs.push_back({"out", DType::f32, 1, true, false});
    const std::string name = node.name;
    graph.add(std::move(node));
    for (const std::int64_t producer : producers) {
      graph.connect("s" + std::to_string(producer), "out", name, "i" + std::to_string(producer));
    }
  }
  graph.validate();
  return graph;
}

}  // namespace maestro::testing
