// SPDX-License-Identifier: Apache-2.0
// Simple section graphs for tests that need no layouts: every port is f32 with a single column.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro::testing {

/// Adds a section with the output "out" and, from each of `inputs`, an input of its name.
inline void add_section(SectionGraph& graph, const std::string& name, Role role, const std::vector<std::string>& inputs,
                        std::int64_t replicas = 1, std::int64_t least = 0) {
  GraphNode node;
  node.name = name;
  node.role = role;
  node.replicas = replicas;
  node.least = least;
  for (const std::string& input : inputs) node.ports.inputs.push_back({input, DType::f32, 1});
  node.ports.outputs.push_back({"out", DType::f32, 1});
  graph.add(std::move(node));
  for (const std::string& input : inputs) graph.connect(input, "out", name, input);
}

/// Returns a graph with sections 0 "text", 1 "teacher", frozen, and 2 "student", trained.
inline SectionGraph distillation_graph(std::int64_t teachers = 1, std::int64_t least = 0) {
  SectionGraph graph;
  add_section(graph, "text", Role::source, {});
  add_section(graph, "teacher", Role::frozen, {"text"}, teachers, least);
  add_section(graph, "student", Role::trained, {"text", "teacher"});
  return graph;
}

}  // namespace maestro::testing
