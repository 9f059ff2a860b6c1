// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/section_graph.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

std::string suggestion(std::string_view wanted, const std::vector<GraphNode>& nodes) {
  std::vector<std::string> names;
  for (const GraphNode& node : nodes) names.push_back(node.name);
  const auto nearest = nearest_name(wanted, names);
  if (nearest) return "; did you mean '" + *nearest + "'?";
  if (names.empty()) return "; it has none";
  std::string list = "; there are";
  for (const auto& name : names) list += " '" + name + "'";
  return list;
}

std::string shape_text(const Port& port) {
  return "(" + std::string(name_of(port.dtype)) + ", " + std::to_string(port.columns) +
         (port.columns == 1 ? " column" : " columns") +
         (port.axis == Axis::tokens ? "" : ", by " + std::string(name_of(port.axis))) + ")";
}

/// Returns the names of all ports, with the nearest to a name.
std::string ports_text(std::string_view wanted, const std::vector<Port>& ports) {
  std::vector<std::string> names;
  std::string list;
  for (const Port& port : ports) {
    names.push_back(port.name);
    list += (list.empty() ? "" : ", ") + port.name + " " + shape_text(port);
  }
  if (names.empty()) return "; it has none";
  const auto nearest = nearest_name(wanted, names);
  return (nearest ? "; did you mean '" + *nearest + "'?" : ";") + " there are " + list;
}

bool contains(const std::vector<Port>& ports, std::string_view name) {
  return std::ranges::find(ports, name, &Port::name) != ports.end();
}

const Port& find_port(const GraphNode& node, std::string_view name, bool input) {
  const std::vector<Port>& ports = input ? node.ports.inputs : node.ports.outputs;
  const auto found = std::ranges::find(ports, name, &Port::name);
  if (found != ports.end()) return *found;
  const char* const kind = input ? "input" : "output";
  const char* const other = input ? "output" : "input";
  const bool turned = contains(input ? node.ports.outputs : node.ports.inputs, name);
  throw JobError("section '" + node.name + "' has no " + kind + " port '" + std::string(name) + "'" +
                 (turned ? std::string(", but an ") + other + " with this name; an edge goes from an output to an input"
                         : ports_text(name, ports)));
}

std::string port_text(const GraphNode& node, const Port& port) {
  return node.name + "." + port.name + " " + shape_text(port);
}

}  // namespace

std::string_view mode_name(Role role) {
  if (role == Role::source) return "source";
  if (role == Role::generator) return "generator";
  return role == Role::frozen ? "forward_only" : "forward_backward";
}

Axis GraphNode::axis() const {
  for (const Port& port : ports.inputs) {
    if (!port.optional) return port.axis;
  }
  return Axis::tokens;
}

std::int64_t GraphNode::ranks_before(std::int64_t end) const {
  if (!mixed()) return end * layout.ranks();
  return layout.tensor * std::accumulate(contexts.begin(), contexts.begin() + end, std::int64_t{0});
}

SectionId SectionGraph::add(GraphNode node) {
  if (find(node.name)) throw JobError("two sections are named '" + node.name + "'; every section needs its own name");
  nodes_.push_back(std::move(node));
  return SectionId(static_cast<std::uint32_t>(nodes_.size() - 1));
}

EdgeId SectionGraph::connect(std::string_view from, std::string_view from_port, std::string_view to,
                             std::string_view to_port) {
  const auto resolve = [&](std::string_view name) {
    if (const auto id = find(name)) return *id;
    throw JobError("no section is named '" + std::string(name) + "'" + suggestion(name, nodes_));
  };
  GraphEdge edge;
  edge.from = resolve(from);
  edge.to = resolve(to);
  const GraphNode& producer = node(edge.from);
  const GraphNode& consumer = node(edge.to);
  const Port& out = find_port(producer, from_port, false);
  const Port& in = find_port(consumer, to_port, true);
  if (out.dtype != in.dtype || out.columns != in.columns || out.axis != in.axis) {
    throw JobError("ports do not fit: " + port_text(producer, out) + " -> " + port_text(consumer, in));
  }
  const bool by_vocabulary = out.sharding == Sharding::vocabulary || in.sharding == Sharding::vocabulary;
  const auto cut_alike = [&] {
    return out.sharding == in.sharding && producer.layout.tensor == consumer.layout.tensor;
  };
  if (by_vocabulary && std::max(producer.layout.tensor, consumer.layout.tensor) > 1 && !cut_alike()) {
    throw JobError(port_text(producer, out) + " and " + port_text(consumer, in) +
                   " are sharded by vocabulary, which needs equal tensor degrees on both sides: " + producer.name +
                   ".tensor = " + std::to_string(producer.layout.tensor) + ", " + consumer.name + ".tensor = " +
                   std::to_string(consumer.layout.tensor) + "; make them equal, or choose another boundary");
  }
  for (const GraphEdge& other : edges_) {
    if (other.to == edge.to && other.to_port == to_port) {
      throw JobError("input " + port_text(consumer, in) + " is connected twice");
    }
  }
  edge.from_port = out.name;
  edge.to_port = in.name;
  edge.dtype = producer.sends_bf16 && out.dtype == DType::f32 ? DType::bf16 : out.dtype;
  edge.columns = out.columns;
  edge.axis = out.axis;
  edge.sources = producer.sources;
  edge.from_sharding = out.sharding;
  edge.to_sharding = in.sharding;
  edge.gradient = out.differentiable && in.differentiable && producer.runs_backward() && consumer.runs_backward();
  edges_.push_back(std::move(edge));
  return EdgeId(static_cast<std::uint32_t>(edges_.size() - 1));
}

void SectionGraph::connect_weights(SectionId from, SectionId to) {
  const GraphNode& sender = node(from);
  const GraphNode& generator = node(to);
  const std::string edge = sender.section_name() + ".weights -> " + generator.name + ".weights";
  if (!generator.generates()) {
    throw JobError(edge + ": only a section of type generator takes weights, and '" + generator.name + "' is not one");
  }
  if (!sender.trained()) {
    throw JobError(edge + ": a generator takes the weights of a trained section, and '" + sender.section_name() +
                   "' is not trained");
  }
  for (const GraphRegister& other : registers_) {
    if (other.to == to && (other.from == from || node(other.from).section_name() != sender.section_name())) {
      throw JobError(edge + ": '" + generator.name + "' already takes the weights of '" +
                     node(other.from).section_name() + "'");
    }
  }
  registers_.push_back({from, to});
}

bool SectionGraph::publishes(SectionId id) const {
  return std::ranges::any_of(registers_, [id](const GraphRegister& each) { return each.from == id; });
}

void SectionGraph::set_sources(SectionId id, const SourceSet& sources) {
  nodes_[id.value()].sources = sources;
  for (GraphEdge& edge : edges_) {
    if (edge.from == id) edge.sources = sources;
  }
}

void SectionGraph::check_rows(const GraphEdge& edge) const {  // SG-3
  const GraphNode& from = node(edge.from);
  const GraphNode& to = node(edge.to);
  const Port& in = find_port(to, edge.to_port, true);
  if (!edge.sources.all() && edge.sources != to.sources && !in.chosen && !in.optional) {
    throw JobError("section '" + from.name + "' runs for the samples of some sources only, but input " +
                   port_text(to, in) + " needs rows of every sample");
  }
  if (edge.gradient && !to.sources.all() && edge.sources != to.sources) {
    throw JobError("section '" + to.name + "' runs for the samples of some sources only, so '" + from.name +
                   "' would get no gradient for the others; freeze one of the two");
  }
  // Samples without images still have tokens, and would wait for rows that no section produces.
  const bool needs_images = std::ranges::any_of(
      from.ports.inputs, [](const Port& port) { return !port.optional && !counts_tokens(port.axis); });
  const bool of_tokens = counts_tokens(edge.axis) || edge.axis == Axis::answers;
  if (!of_tokens || !needs_images) return;
  throw JobError("section '" + from.name + "' runs only for samples with images, so its output '" + edge.from_port +
                 "' must count patches or visual rows, not tokens");
}

void SectionGraph::validate() const {
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const GraphNode& node = nodes_[index];
    for (const Port& port : node.ports.inputs) {
      if (port.optional) continue;
      const bool connected = std::any_of(edges_.begin(), edges_.end(), [&](const GraphEdge& edge) {
        return edge.to.value() == index && edge.to_port == port.name;
      });
      if (!connected) {
        throw JobError("input " + port_text(node, port) + " is not connected; connect an output port to it");
      }
    }
  }
  for (const GraphEdge& edge : edges_) check_rows(edge);
  const std::vector<SectionId> ordered = topological();
  if (ordered.size() == nodes_.size()) return;
  std::string names;
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const bool placed = std::ranges::find(ordered, SectionId(static_cast<std::uint32_t>(index))) != ordered.end();
    if (!placed) names += (names.empty() ? "'" : ", '") + nodes_[index].name + "'";
  }
  throw JobError("the section graph has a cycle through " + names + "; tensors must flow one way");
}

std::vector<bool> SectionGraph::repeatable() const {
  std::vector<bool> found(nodes_.size(), false);
  for (const SectionId id : topological()) {
    const std::vector<EdgeId> into = inputs(id);
    found[id.value()] = !node(id).runs_backward() && std::ranges::all_of(into, [&](EdgeId edge) {
      return found[edges_[edge.value()].from.value()];
    });
  }
  return found;
}

std::vector<SectionId> SectionGraph::topological() const {
  // Kahn's algorithm; sections on a cycle are left out.
  std::vector<std::size_t> waiting(nodes_.size());
  for (const GraphEdge& edge : edges_) ++waiting[edge.to.value()];
  std::vector<SectionId> order;
  for (std::uint32_t index = 0; index < waiting.size(); ++index) {
    if (waiting[index] == 0) order.emplace_back(index);
  }
  for (std::size_t at = 0; at < order.size(); ++at) {
    for (const EdgeId edge : outputs(order[at])) {
      const SectionId to = edges_[edge.value()].to;
      if (--waiting[to.value()] == 0) order.push_back(to);
    }
  }
  return order;
}

std::optional<SectionId> SectionGraph::find(std::string_view name) const {
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].name == name) return SectionId(static_cast<std::uint32_t>(index));
  }
  return std::nullopt;
}

std::vector<SectionId> SectionGraph::stages_of(std::string_view section_name) const {
  std::vector<SectionId> found;
  for (std::uint32_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].section_name() == section_name) found.emplace_back(index);
  }
  return found;
}

std::vector<EdgeId> SectionGraph::inputs(SectionId id) const {
  std::vector<EdgeId> found;
  for (std::size_t index = 0; index < edges_.size(); ++index) {
    if (edges_[index].to == id) found.emplace_back(static_cast<std::uint32_t>(index));
  }
  return found;
}

std::vector<EdgeId> SectionGraph::outputs(SectionId id) const {
  std::vector<EdgeId> found;
  for (std::size_t index = 0; index < edges_.size(); ++index) {
    if (edges_[index].from == id) found.emplace_back(static_cast<std::uint32_t>(index));
  }
  return found;
}

std::vector<Channel> SectionGraph::channels() const {
  std::vector<Channel> found;
  for (const Direction direction : directions) {
    for (std::uint32_t index = 0; index < edges_.size(); ++index) {
      if (direction == Direction::forward || edges_[index].gradient) found.push_back({EdgeId(index), direction});
    }
  }
  return found;
}

std::vector<Channel> SectionGraph::received(SectionId id) const {
  std::vector<Channel> found = channels();
  std::erase_if(found, [&](Channel at) { return receiver(at) != id; });
  return found;
}

std::vector<Channel> SectionGraph::sent(SectionId id) const {
  std::vector<Channel> found = channels();
  std::erase_if(found, [&](Channel at) { return sender(at) != id; });
  return found;
}

const std::string& SectionGraph::sender_port(Channel at) const {
  return at.gradient() ? edge(at.edge).to_port : edge(at.edge).from_port;
}

Sharding SectionGraph::sender_sharding(Channel at) const {
  return at.gradient() ? edge(at.edge).to_sharding : edge(at.edge).from_sharding;
}

std::string SectionGraph::name_of(Channel at) const {
  return (at.gradient() ? "gradient of " : "") + node(sender(at)).name + "." + sender_port(at) + " -> " +
         node(receiver(at)).name + "." + receiver_port(at);
}

bool SectionGraph::awaits_gradient(SectionId id) const {
  return std::any_of(edges_.begin(), edges_.end(),
                     [&](const GraphEdge& edge) { return edge.from == id && edge.gradient; });
}

}  // namespace maestro
