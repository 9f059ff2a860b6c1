// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/rescue_point.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

namespace maestro {

namespace {

using Sections = std::vector<SectionId>;

/// Returns the sets of sections that are joined (RP-1).
std::vector<Sections> joined_sections(const SectionGraph& graph, bool joined_norms) {
  const std::size_t count = graph.nodes().size();
  std::vector<std::size_t> set_of(count);
  for (std::size_t index = 0; index < count; ++index) set_of[index] = index;
  const auto join = [&](std::size_t a, std::size_t b) {
    std::ranges::replace(set_of, std::size_t(set_of[a]), std::size_t(set_of[b]));
  };
  for (const GraphEdge& edge : graph.edges()) {
    if (edge.gradient) join(edge.from.value(), edge.to.value());
  }
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      const GraphNode& one = graph.nodes()[a];
      const GraphNode& other = graph.nodes()[b];
      const bool answered_together = joined_norms && one.trained() && other.trained();
      if (answered_together || one.section_name() == other.section_name()) join(a, b);
    }
  }
  std::map<std::size_t, Sections> sets;
  for (std::uint32_t index = 0; index < count; ++index) sets[set_of[index]].push_back(SectionId(index));
  std::vector<Sections> result;
  for (auto& [set, sections] : sets) result.push_back(std::move(sections));
  return result;
}

bool is_read_by_others(const SectionGraph& graph, const Sections& sections) {
  const auto in_set = [&](SectionId section) { return std::ranges::find(sections, section) != sections.end(); };
  return std::ranges::any_of(graph.edges(),
                             [&](const GraphEdge& edge) { return in_set(edge.from) && !in_set(edge.to); });
}

/// Returns an index in `standing` for each trained section: a replica with the section's complete state after `step`.
/// Sections without such a replica are left out.
std::map<SectionId, std::size_t> writers_of(const SectionGraph& graph, const Sections& sections, StepId step,
                                            std::span<const StandsStill> standing) {
  std::map<SectionId, std::size_t> writers;
  for (std::size_t at = 0; at < standing.size(); ++at) {
    const StandsStill& replica = standing[at];
    const bool here = std::ranges::find(sections, replica.section) != sections.end();
    if (here && graph.node(replica.section).trained() && replica.whole && replica.step == step) {
      writers.emplace(replica.section, at);
    }
  }
  return writers;
}

}  // namespace

std::optional<RescuePoint> rescue_point(const SectionGraph& graph, bool joined_norms, StepId finished,
                                        std::span<const StandsStill> standing) {
  std::set<StepId, std::greater<>> steps;
  for (const StandsStill& replica : standing) steps.insert(replica.step);
  RescuePoint point;
  for (const Sections& sections : joined_sections(graph, joined_norms)) {
    const auto trained =
        std::ranges::count_if(sections, [&](SectionId section) { return graph.node(section).trained(); });
    if (trained == 0) continue;
    const auto all_hold = [&](StepId step) {
      return step >= finished && std::ssize(writers_of(graph, sections, step, standing)) == trained;
    };
    const auto step = std::ranges::find_if(steps, all_hold);
    if (step == steps.end()) return std::nullopt;
    point.writers.merge(writers_of(graph, sections, *step, standing));
    if (*step == finished) continue;
    if (is_read_by_others(graph, sections)) return std::nullopt;
    for (const SectionId section : sections) point.ahead[section] = *step;
  }
  return point;
}

}  // namespace maestro
