// SPDX-License-Identifier: Apache-2.0
#include "actors/job/lane_text.hpp"

namespace maestro {

std::string place_text(const ReplicaPlacement& at) {
  std::string on;
  for (const DeviceId& id : at.devices) on += (on.empty() ? "" : ", ") + text_of(id);
  return on + " of process " + std::to_string(at.process.value());
}

std::string rank_text(const SectionGraph& graph, SectionId section, ReplicaIndex replica, LayoutRank rank) {
  return graph.node(section).name + "/" + std::to_string(replica.value()) + "." + std::to_string(rank.value());
}

std::vector<std::string> lanes_of(const ResolvedJob& plan) {
  std::vector<std::string> lanes;
  for (const ReplicaPlacement& at : plan.places) {
    lanes.push_back("section '" + plan.graph.node(at.section).name + "' replica " + std::to_string(at.replica.value()) +
                    " on " + place_text(at));
  }
  return lanes;
}

}  // namespace maestro
