// SPDX-License-Identifier: Apache-2.0
// Adds up the replicas' sums of squares at the end of a step, to totals for clipping gradients. Pure.
//
// NT-1 (fixed order): parts are added by section and then by replica, in whichever order reports arrive: totals repeat
//       bitwise.
// NT-2 (single answer): a section receives its total once per step, together with all sections that share the answer,
//       when each of them is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/messages/messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// Not thread-safe; belongs to the coordinator. The graph outlives it.
class NormTotals {
 public:
  using Answers = std::vector<std::pair<SectionId, NormTotal>>;  // by section, to each of its replicas

  /// `global_clip`: a single norm clips all sections. `joined`: all sections are answered together.
  NormTotals(const SectionGraph& graph, bool global_clip, bool joined)
      : graph_(&graph), global_clip_(global_clip), joined_(joined || global_clip) {}

  /// Adds a report, and returns the totals that it completes. `active` returns whether a section had a micro-batch in
  /// the step.
  [[nodiscard]] Answers add(const NormReport& report, const std::function<bool(SectionId)>& active);

 private:
  struct Parts {
    std::map<ReplicaIndex, double> by_replica;
    std::size_t reporters = 1;
    [[nodiscard]] bool complete() const { return by_replica.size() == reporters; }
    [[nodiscard]] double total() const;
  };
  [[nodiscard]] const std::string& section_of(SectionId node) const { return graph_->node(node).section_name(); }

  const SectionGraph* graph_;
  bool global_clip_;
  bool joined_;
  std::map<std::uint64_t, std::map<SectionId, Parts>> steps_;
};

}  // namespace maestro
