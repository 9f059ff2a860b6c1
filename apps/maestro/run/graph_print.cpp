// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/graph_print.hpp"

#include <algorithm>
#include <vector>

#include "actors/job/lane_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/graph/replica_mix.hpp"
#include "runtime/observe/padded.hpp"
#include "runtime/page/graph_chart.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_lines = 7;  // lines in a box

std::string counted(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string type_of(const PrintedGraph& graph, const GraphNode& node) {
  if (node.role == Role::source) return "source";
  const auto found = graph.types.find(node.section_name());
  return found == graph.types.end() ? "" : found->second;
}

std::string role_text(const GraphNode& node) {
  if (node.generates()) return "generates samples";
  if (node.role == Role::passing) return "frozen, passes gradients";
  return node.role == Role::frozen ? "frozen" : "trained";
}

std::string copies_text(const GraphNode& node) {
  std::string text = counted(node.replicas, "replica");
  if (node.least > 0) text += " (at least " + std::to_string(node.least) + ")";
  if (node.stages > 1) text += ", stage " + std::to_string(node.stage + 1) + " of " + std::to_string(node.stages);
  if (node.layout.tensor > 1) text += ", tensor " + std::to_string(node.layout.tensor);
  if (node.mixed()) return text + ", " + text_of_mix(node.contexts);
  if (node.layout.context > 1) text += ", context " + std::to_string(node.layout.context);
  if (node.layout.expert > 1) text += ", expert " + std::to_string(node.layout.expert);
  return text;
}

std::string batch_text(const GraphNode& node) {
  std::string text = "micro-batch of " + counted(node.micro_batch, "sample");
  if (node.micro_batch_rows > 0)
    text += ", " + std::to_string(node.micro_batch_rows) + " " + std::string(name_of(node.axis()));
  return text;
}

std::vector<std::string> places_of(const ResolvedJob& plan, std::size_t index) {
  std::vector<std::string> places;
  for (const ReplicaPlacement& at : plan.places) {
    if (at.section.value() == index && !at.shares) places.push_back(place_text(at));
  }
  return places;
}

/// Returns the section whose weights a generator takes.
std::string sender_of(const ResolvedJob& plan, std::size_t generator) {
  const auto found =
      std::ranges::find(plan.graph.registers(), SectionId(static_cast<std::uint32_t>(generator)), &GraphRegister::to);
  return found == plan.graph.registers().end() ? "no section" : plan.graph.node(found->from).section_name();
}

/// Returns a section's role, replicas and layout, micro-batch and places, or a source's samples and place.
std::vector<std::string> facts_of(const PrintedGraph& graph, std::size_t index) {
  const GraphNode& node = graph.plan.graph.nodes()[index];
  std::vector<std::string> facts{role_text(node) + ", " + copies_text(node), batch_text(node)};
  if (node.generates()) facts.back() = "takes " + sender_of(graph.plan, index) + ".weights before each step";
  if (node.role == Role::source) facts = {counted(node.micro_batch, "sample") + " a step"};
  const std::vector<std::string> places = places_of(graph.plan, index);
  facts.insert(facts.end(), places.begin(), places.end());
  return facts;
}

std::string shape_text(const GraphEdge& edge) {
  return std::string(name_of(edge.dtype)) + " x " + std::to_string(edge.columns) + ", " +
         std::string(name_of(edge.axis)) + (edge.gradient ? ", gradient returns" : "");
}

std::string edge_name(const ResolvedJob& plan, std::size_t index) {
  return plan.graph.name_of({EdgeId(static_cast<std::uint32_t>(index)), Direction::forward});
}

/// Returns a text for use between Graphviz' double quotes.
std::string dot_text(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

GraphBox box_of(const PrintedGraph& graph, std::size_t index) {
  const GraphNode& node = graph.plan.graph.nodes()[index];
  GraphBox box;
  box.title = printable(node.name);
  box.lines = facts_of(graph, index);
  box.lines.insert(box.lines.begin(), type_of(graph, node));
  if (box.lines.size() > most_lines) {
    const std::size_t left_out = box.lines.size() - most_lines + 1;
    box.lines.resize(most_lines - 1);
    box.lines.push_back("and " + std::to_string(left_out) + " more");
  }
  for (const Port& port : node.ports.inputs) box.inputs.push_back(port.name);
  for (const Port& port : node.ports.outputs) {
    box.outputs.push_back(port.name + " " + std::string(name_of(port.dtype)) + " x " + std::to_string(port.columns));
  }
  return box;
}

std::size_t index_of(const std::vector<Port>& ports, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(ports, name, &Port::name) - ports.begin());
}

}  // namespace

std::string graph_text(const PrintedGraph& graph) {
  const ResolvedJob& plan = graph.plan;
  std::size_t names = 0, types = 0, edges = 0;
  for (const GraphNode& node : plan.graph.nodes()) {
    names = std::max(names, node.name.size());
    types = std::max(types, type_of(graph, node).size());
  }
  for (std::size_t at = 0; at < plan.graph.edges().size(); ++at) edges = std::max(edges, edge_name(plan, at).size());
  std::string out = printable(plan.name) + ": " + counted(std::ssize(plan.graph.nodes()), "section") + ", " +
                    counted(std::ssize(plan.graph.edges()), "edge") + "\n";
  for (std::size_t at = 0; at < plan.graph.nodes().size(); ++at) {
    const GraphNode& node = plan.graph.nodes()[at];
    out += "  " + padded(node.name, names + 2) + padded(type_of(graph, node), types + 2);
    const std::vector<std::string> facts = facts_of(graph, at);
    for (const std::string& fact : facts) out += (&fact == facts.data() ? "" : "; ") + fact;
    out += "\n";
  }
  for (std::size_t at = 0; at < plan.graph.edges().size(); ++at) {
    out += "  " + padded(edge_name(plan, at), edges + 2) + shape_text(plan.graph.edges()[at]) + "\n";
  }
  for (const GraphRegister& each : plan.graph.registers()) {
    out += "  " + plan.graph.node(each.from).name + ".weights -> " + plan.graph.node(each.to).name +
           ".weights  before each step\n";
  }
  return out;
}

std::string graph_dot(const PrintedGraph& graph) {
  const SectionGraph& sections = graph.plan.graph;
  std::string out = "digraph \"" + dot_text(graph.plan.name) +
                    "\" {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n" +
                    "  edge [fontname=\"sans-serif\", fontsize=10];\n";
  for (std::size_t at = 0; at < sections.nodes().size(); ++at) {
    const GraphNode& node = sections.nodes()[at];
    out += "  \"" + dot_text(node.name) + "\" [label=\"" + dot_text(node.name) + "\\n" + dot_text(type_of(graph, node));
    for (const std::string& fact : facts_of(graph, at)) out += "\\n" + dot_text(fact);
    out += "\"];\n";
  }
  for (const GraphEdge& edge : sections.edges()) {
    out += "  \"" + dot_text(sections.node(edge.from).name) + "\" -> \"" + dot_text(sections.node(edge.to).name) +
           "\" [label=\"" + dot_text(edge.from_port) + " -> " + dot_text(edge.to_port) + "\\n" +
           dot_text(shape_text(edge)) + "\"" + (edge.gradient ? ", dir=both" : "") + "];\n";
  }
  for (const GraphRegister& each : sections.registers()) {
    out += "  \"" + dot_text(sections.node(each.from).name) + "\" -> \"" + dot_text(sections.node(each.to).name) +
           "\" [label=\"weights\", style=dashed, constraint=false];\n";
  }
  return out + "}\n";
}

std::string graph_svg(const PrintedGraph& graph) {
  const SectionGraph& sections = graph.plan.graph;
  GraphDrawing drawing;
  drawing.label = "sections and edges of " + printable(graph.plan.name);
  drawing.both_ways = "a gradient returns";
  for (std::size_t at = 0; at < sections.nodes().size(); ++at) drawing.boxes.push_back(box_of(graph, at));
  for (std::size_t at = 0; at < sections.edges().size(); ++at) {
    const GraphEdge& edge = sections.edges()[at];
    drawing.arrows.push_back({edge.from.value(), index_of(sections.node(edge.from).ports.outputs, edge.from_port),
                              edge.to.value(), index_of(sections.node(edge.to).ports.inputs, edge.to_port),
                              edge.gradient, edge_name(graph.plan, at) + ": " + shape_text(edge)});
  }
  return graph_chart(drawing);
}

}  // namespace maestro
