// SPDX-License-Identifier: Apache-2.0
// Elastic sections (SV-11): looks at a running job's replicas, and decides which section needs one more process or one
// less (PlacementBalance). Pure; belongs to rank 0's supervisor.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/messages/addresses.hpp"
#include "actors/messages/messages.hpp"
#include "actors/run/supervisor/placement_balance.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// Not thread-safe.
class ElasticWatch {
 public:
  ElasticWatch(const SectionGraph& graph, std::vector<std::string> sections)
      : graph_(&graph), sections_(std::move(sections)) {}

  [[nodiscard]] bool empty() const { return sections_.empty(); }
  /// Adds a replica's answer to the current look.
  void add(const WaitingFor& answer) { answers_.push_back(answer); }
  /// Ends the current look at the replicas of `directory`. Returns the sections to change. `quiet`: no placements move.
  [[nodiscard]] std::vector<std::pair<std::string, PlacementDecision>> look(const Directory& directory, bool quiet);
  /// Returns the processes that were started for a section, repeated for each of their replicas.
  [[nodiscard]] std::vector<ProcessId> extra(const Directory& directory, const std::string& section) const;
  void started(ProcessId process) { started_.insert(process); }
  /// Forgets a process that ends, or whose number is used again.
  void forget(ProcessId process) { started_.erase(process); }
  /// Returns a line about a process that starts.
  [[nodiscard]] std::string text_of_start(const std::string& section, ProcessId process) const;
  /// Returns a line about a process that ends.
  [[nodiscard]] std::string text_of_end(const std::string& section, ProcessId process) const;

 private:
  [[nodiscard]] PlacementDecision judge(const Directory& directory, const std::string& section);
  [[nodiscard]] bool is_of(SectionId id, const std::string& section) const {
    return graph_->node(id).section_name() == section;
  }

  const SectionGraph* graph_;
  std::vector<std::string> sections_;
  std::map<std::string, PlacementBalance> balances_;
  std::vector<WaitingFor> answers_;  // answers to the current look
  std::set<ProcessId> started_;
};

}  // namespace maestro
