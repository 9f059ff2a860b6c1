// SPDX-License-Identifier: Apache-2.0
// Random section graphs: a source, then sections that read the source and earlier sections. Some run only for samples
// with patches.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro::testing {

using Generator = std::mt19937_64;

/// Returns a number in [low, high].
inline std::int64_t draw(Generator& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

struct GraphLimits {
  std::int64_t sections = 4;  ///< sections after the source
  std::int64_t replicas = 3;
  std::int64_t micro_batch = 5;
  std::int64_t max_in_flight = 3;
  bool patches = true;      ///< whether some sections run only for some samples
  bool frozen = true;       ///< whether some sections pass gradients on and are not trained
  std::int64_t tensor = 1;  ///< largest degrees of a replica; beyond 1, ports have random shardings
  std::int64_t context = 1;
  bool mixed = false;        ///< whether replicas of a section may differ in context
  std::int64_t sources = 1;  ///< sources of the samples; beyond 1, some sections run only for some sources
};

/// Shardings of ports, by section. Sharding by vocabulary needs equal tensor degrees at both ends: either all sections
/// have equal degrees, or no port is sharded by vocabulary.
class RandomShardings {
 public:
  RandomShardings(Generator& random, const GraphLimits& limits)
      : random_(&random), limits_(&limits), cut_(limits.tensor > 1 || limits.context > 1) {
    if (cut_ && random() % 3 == 0) equal_tensor_ = draw(random, 1, limits.tensor);
  }
  Layout layout() {
    if (!cut_) return {};
    const std::int64_t tensor = equal_tensor_ > 0 ? equal_tensor_ : draw(*random_, 1, limits_->tensor);
    return {tensor, draw(*random_, 1, limits_->context)};
  }
  Sharding output() {
    if (!cut_) return Sharding::context_rows;
    if (equal_tensor_ > 0 && (*random_)() % 2 == 0) return Sharding::vocabulary;
    return row_sharding();
  }
  Sharding input(Sharding output) {
    if (!cut_ || output == Sharding::vocabulary) return output;
    return row_sharding();
  }

 private:
  Sharding row_sharding() {
    constexpr std::array kinds{Sharding::replicated, Sharding::context_rows, Sharding::rank_rows};
    return kinds[(*random_)() % kinds.size()];
  }
  Generator* random_;
  const GraphLimits* limits_;
  bool cut_;
  std::int64_t equal_tensor_ = 0;  // 0: degrees differ by section
};

inline SourceSet random_sources(Generator& random, std::int64_t count) {
  std::vector<bool> held;
  for (std::int64_t at = 0; at < count; ++at) held.push_back(random() % 2 == 0);
  return SourceSet(held);
}

/// Returns a graph. Section 0 is the source "s0" with outputs "out" and "patches". Every other section has an input
/// "iK" for some earlier sections sK, and the output "out"; every port is f32 with a single column. A section by
/// patches reads only patches, and its output counts patches or visual rows; a section by tokens reads at least one
/// input by tokens, and others as optional inputs. The last section is trained.
inline SectionGraph random_graph(Generator& random, const GraphLimits& limits, std::int64_t source_batch) {
  SectionGraph graph;
  const std::int64_t count = draw(random, 1, limits.sections);
  std::vector<Axis> axes{Axis::tokens};
  RandomShardings shardings(random, limits);
  for (std::int64_t index = 0; index <= count; ++index) {
    GraphNode node;
    node.name = "s" + std::to_string(index);
    node.role = index == 0 ? Role::source : random() % 2 == 0 ? Role::frozen : Role::trained;
    if (index == count) node.role = Role::trained;
    const bool may_pass = node.trained() && index != count && limits.frozen;
    if (may_pass && random() % 4 == 0) node.role = Role::passing;
    node.replicas = index == 0 ? 1 : draw(random, 1, limits.replicas);
    node.micro_batch = index == 0 ? source_batch : draw(random, 1, limits.micro_batch);
    node.max_in_flight = draw(random, 1, limits.max_in_flight);
    node.layout = shardings.layout();
    if (limits.mixed && node.replicas > 1) {
      for (std::int64_t at = 0; at < node.replicas; ++at) node.contexts.push_back(draw(random, 1, limits.context));
      node.layout.context = *std::ranges::max_element(node.contexts);
    }
    const bool by_patches = limits.patches && index > 0 && index < count && random() % 3 == 0;
    const Axis axis = by_patches ? Axis::patches : Axis::tokens;
    if (by_patches && random() % 2 == 0) node.micro_batch_rows = draw(random, 1, 9);
    const Axis made = by_patches && random() % 2 == 0 ? Axis::visual : axis;
    if (index > 0) axes.push_back(made);
    const bool chosen = limits.sources > 1 && index > 0 && index < count && !by_patches && random() % 2 == 0;
    if (chosen) node.sources = random_sources(random, limits.sources);
    std::vector<std::int64_t> producers;
    for (std::int64_t before = 1; before < index; ++before) {
      if ((!by_patches || axes[static_cast<std::size_t>(before)] == Axis::patches) && random() % 2 == 0) {
        producers.push_back(before);
      }
    }
    // The source, so that there is always a required input.
    if (index > 0) producers.push_back(0);
    if (!node.sources.all() && producers.size() > 1) node.role = Role::frozen;  // no gradients for only some samples
    for (const std::int64_t producer : producers) {
      const Axis from = producer == 0 ? axis : axes[static_cast<std::size_t>(producer)];
      const bool patches = producer == 0 && by_patches;
      const GraphNode& sender = graph.nodes()[static_cast<std::size_t>(producer)];
      const Sharding sharding = shardings.input(sender.ports.outputs[patches ? 1 : 0].sharding);
      node.ports.inputs.push_back(
          {"i" + std::to_string(producer), DType::f32, 1, true, from != axis, from, sharding, !sender.sources.all()});
    }
    node.ports.outputs.push_back({"out", DType::f32, 1, true, false, made, shardings.output()});
    if (index == 0) {
      node.ports.outputs.push_back({"patches", DType::f32, 1, true, false, Axis::patches, shardings.output()});
    }
    const std::string name = node.name;
    graph.add(std::move(node));
    for (const std::int64_t producer : producers) {
      const bool patches = producer == 0 && by_patches;
      graph.connect("s" + std::to_string(producer), patches ? "patches" : "out", name, "i" + std::to_string(producer));
    }
  }
  graph.validate();
  return graph;
}

}  // namespace maestro::testing
