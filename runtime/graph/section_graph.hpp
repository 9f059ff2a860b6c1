// SPDX-License-Identifier: Apache-2.0
// The section graph: nodes with ports, edges between ports. Plain data, and the checks that must pass before a run
// starts. Pure; not thread-safe while it is built, freely shared afterwards.
//
// SG-1 (valid graph): after validate() every required input is connected once, edges join ports of equal dtype and
//       width, and the graph is acyclic.
// SG-2 (dense ids): ids are dense indices in order of addition, the same in every process of a job.
// SG-3 (rows for every sample): after validate() an input has rows for every sample that activates its section, unless
//       it is optional or chosen, and a gradient returns for every sample of the section that receives it.
// SG-4 (delayed): a register hands over the weights that a section has before a step, so it may close a cycle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/gradient_wire.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/graph/channel.hpp"
#include "runtime/graph/port.hpp"
#include "runtime/graph/source_set.hpp"

namespace maestro {

/// A section's part in training.
enum class Role : std::uint8_t {
  source,     ///< reads samples
  frozen,     ///< forward passes only
  passing,    ///< frozen, but gradients pass through it to sections before it
  generator,  ///< makes samples with another section's weights, outside of steps
  trained
};
/// Returns the name of the role's passes in reports: "source", "forward_only" or "forward_backward".
[[nodiscard]] std::string_view mode_name(Role role);

struct GraphNode {
  std::string name;
  std::string section;     ///< section whose stage this node is; empty: the node itself is the section
  std::int64_t stage = 0;  ///< index among the `stages` pipeline stages
  std::int64_t stages = 1;
  bool splits = false;  ///< separate forward and backward passes, even if no gradient returns to it
  Role role = Role::trained;
  Ports ports;
  Reading reading = Reading::own;
  std::int64_t replicas = 1;
  std::int64_t least = 0;             ///< replicas with separate devices at the start; 0: all
  Layout layout;                      ///< layout of each replica; with `contexts`, of the widest
  std::int64_t micro_batch = 1;       ///< samples at most
  std::int64_t micro_batch_rows = 0;  ///< rows on the section's axis at most, unless a sample has more; 0: unbounded
  std::int64_t max_in_flight = 1;     ///< micro-batches between forward and backward, per replica
  SourceSet sources = {};             ///< sources whose samples activate the section
  std::vector<std::int64_t> contexts = {};  ///< context degree by replica; empty: all have the layout's
  GradientWire gradient_wire = GradientWire::f32;
  bool sends_bf16 = false;  ///< f32 outputs, and their gradients, travel in bf16

  /// Returns its name in the job file.
  [[nodiscard]] const std::string& section_name() const { return section.empty() ? name : section; }
  /// Returns the replicas with separate devices at the start.
  [[nodiscard]] std::int64_t placed() const { return least > 0 ? least : replicas; }
  /// Returns whether some replicas differ in their context degree.
  [[nodiscard]] bool mixed() const { return !contexts.empty(); }
  [[nodiscard]] Layout layout_of(ReplicaIndex replica) const {
    return mixed() ? Layout{layout.tensor, contexts[replica.value()]} : layout;
  }
  /// Returns the ranks of the replicas before `end`, which is at most placed().
  [[nodiscard]] std::int64_t ranks_before(std::int64_t end) const;
  /// Returns whether a rank exchanges gradients with other replicas. Of replicas that differ in context the first
  /// context parts do, which all replicas have.
  [[nodiscard]] bool exchanges(std::int64_t rank) const { return !mixed() || layout.context_of(rank) == 0; }
  /// Returns whether it has an optimizer.
  [[nodiscard]] bool trained() const { return role == Role::trained; }
  /// Returns whether its parameters do not change.
  [[nodiscard]] bool frozen() const { return role == Role::frozen || role == Role::passing; }
  [[nodiscard]] bool generates() const { return role == Role::generator; }
  /// Returns whether it computes micro-batches: sources only read them.
  [[nodiscard]] bool plays_in_steps() const { return role != Role::source && role != Role::generator; }
  [[nodiscard]] bool runs_backward() const { return role == Role::passing || role == Role::trained; }
  /// Returns the axis of its required inputs; a source and a section without inputs count tokens.
  [[nodiscard]] Axis axis() const;
  /// Returns whether micro-batches follow the consumer's, filled up to the limits (MC-4), instead of counting samples.
  [[nodiscard]] bool follows_consumer() const {
    return micro_batch_rows > 0 || !counts_tokens(axis()) || !sources.all();
  }
};

struct GraphEdge {
  SectionId from;
  std::string from_port;
  SectionId to;
  std::string to_port;
  DType dtype = DType::f32;  ///< on the way; a port in f32 may have an edge in bf16
  std::int64_t columns = 1;
  Axis axis = Axis::tokens;
  SourceSet sources = {};  ///< sources whose samples have rows here, as set at the producer
  bool gradient = false;   ///< a gradient travels back
  Sharding from_sharding = Sharding::context_rows;
  Sharding to_sharding = Sharding::context_rows;
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(columns) * size_of(dtype); }
};

/// An edge of weights: versions of a trained section's values, which a generator takes; one for each stage.
struct GraphRegister {
  SectionId from;
  SectionId to;
};
inline constexpr std::string_view weights_port = "weights";  ///< both ends of a register, in job files

class SectionGraph {
 public:
  /// Throws JobError if the name is taken.
  SectionId add(GraphNode node);
  /// Throws JobError naming both ports if either is unknown (with the nearest name), they do not fit, or the input is
  /// already connected.
  EdgeId connect(std::string_view from, std::string_view from_port, std::string_view to, std::string_view to_port);
  /// Throws JobError unless `from` is trained, and `to` is a generator that takes no other section's weights.
  void connect_weights(SectionId from, SectionId to);
  [[nodiscard]] const std::vector<GraphRegister>& registers() const { return registers_; }
  /// Returns the channel of a generator's versions. No edge has it.
  [[nodiscard]] Channel weights_channel(SectionId generator) const {
    return {EdgeId(static_cast<std::uint32_t>(edges_.size()) + generator.value())};
  }
  /// Returns the generator whose versions take this channel; nothing if an edge has it.
  [[nodiscard]] std::optional<SectionId> generator_of(Channel channel) const {
    const std::size_t first = edges_.size(), at = channel.edge.value();
    return at < first ? std::nullopt : std::optional(SectionId(static_cast<std::uint32_t>(at - first)));
  }
  /// Returns whether a generator takes the section's weights.
  [[nodiscard]] bool publishes(SectionId id) const;
  void set_max_in_flight(SectionId id, std::int64_t micro_batches) { nodes_[id.value()].max_in_flight = micro_batches; }
  void set_batches(SectionId id, std::int64_t micro_batch, std::int64_t replicas) {
    nodes_[id.value()].micro_batch = micro_batch;
    nodes_[id.value()].replicas = replicas;
  }
  /// Sets the sources whose samples activate a section; its edges have rows for no others.
  void set_sources(SectionId id, const SourceSet& sources);
  /// Throws JobError for a dangling required input, a required input without rows for some samples, or a cycle.
  void validate() const;

  [[nodiscard]] const std::vector<GraphNode>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<GraphEdge>& edges() const { return edges_; }
  [[nodiscard]] const GraphNode& node(SectionId id) const { return nodes_[id.value()]; }
  [[nodiscard]] const GraphEdge& edge(EdgeId id) const { return edges_[id.value()]; }
  [[nodiscard]] std::optional<SectionId> find(std::string_view name) const;
  /// Returns the nodes of a section: its stages in order, or itself.
  [[nodiscard]] std::vector<SectionId> stages_of(std::string_view section_name) const;
  /// Return the edges into or out of a section, in order of addition.
  [[nodiscard]] std::vector<EdgeId> inputs(SectionId id) const;
  [[nodiscard]] std::vector<EdgeId> outputs(SectionId id) const;
  /// Return all channels that carry a tensor, or only the channels that a section receives or sends: values by edge,
  /// then gradients.
  [[nodiscard]] std::vector<Channel> channels() const;
  [[nodiscard]] std::vector<Channel> received(SectionId id) const;
  [[nodiscard]] std::vector<Channel> sent(SectionId id) const;
  /// Return an end of a channel: the section, its port and the sharding there.
  [[nodiscard]] SectionId sender(Channel at) const { return at.gradient() ? edge(at.edge).to : edge(at.edge).from; }
  [[nodiscard]] SectionId receiver(Channel at) const { return sender(at.reversed()); }
  [[nodiscard]] const std::string& sender_port(Channel at) const;
  [[nodiscard]] const std::string& receiver_port(Channel at) const { return sender_port(at.reversed()); }
  [[nodiscard]] Sharding sender_sharding(Channel at) const;
  [[nodiscard]] Sharding receiver_sharding(Channel at) const { return sender_sharding(at.reversed()); }
  /// Returns "teacher.hidden -> student.teacher", or "gradient of student.teacher -> teacher.hidden".
  [[nodiscard]] std::string name_of(Channel at) const;
  /// Returns whether a gradient returns to the section over an edge.
  [[nodiscard]] bool awaits_gradient(SectionId id) const;
  /// Returns whether the backward pass of a micro-batch runs separately from its forward pass.
  [[nodiscard]] bool splits_passes(SectionId id) const { return node(id).splits || awaits_gradient(id); }
  /// Returns, by SectionId, the sections that a run never changes and that need nothing from sections that it changes:
  /// sources, and frozen sections whose inputs all come from such sections. Their passes can be repeated at any time.
  [[nodiscard]] std::vector<bool> repeatable() const;
  /// Returns the sections, each before its consumers.
  [[nodiscard]] std::vector<SectionId> topological() const;

 private:
  void check_rows(const GraphEdge& edge) const;

  std::vector<GraphNode> nodes_;
  std::vector<GraphEdge> edges_;
  std::vector<GraphRegister> registers_;
};

}  // namespace maestro
