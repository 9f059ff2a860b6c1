// SPDX-License-Identifier: Apache-2.0
#include "actors/job/reduction_paths.hpp"

#include <set>
#include <utility>

namespace maestro {

std::vector<ReductionMember> replicas_of(const SectionGraph& graph, SectionId section) {
  std::vector<ReductionMember> members;
  for (std::uint32_t replica = 0; replica < static_cast<std::uint32_t>(graph.node(section).replicas); ++replica) {
    members.push_back({section, ReplicaIndex(replica)});
  }
  return members;
}

std::vector<ReductionMember> end_stages_of(const SectionGraph& graph, SectionId stage, ReplicaIndex replica) {
  const std::vector<SectionId> stages = graph.stages_of(graph.node(stage).section_name());
  return {{stages.front(), replica}, {stages.back(), replica}};
}

bool on_devices_of_their_own(const std::vector<ReplicaPlacement>& places, std::span<const ReductionMember> members,
                             LayoutRank layout_rank) {
  std::set<std::pair<std::uint32_t, DeviceId>> taken;  // (host, device)
  for (const ReductionMember& member : members) {
    const ReplicaPlacement* place = find_place(places, member.section, member.replica);
    if (place == nullptr || layout_rank.value() >= place->devices.size()) return false;
    const DeviceId& device = place->devices[layout_rank.value()];
    if (!device.is_cuda() || !taken.emplace(place->host, device).second) return false;
  }
  return !members.empty();
}

std::vector<std::string> describe_reductions(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places,
                                             bool by_host) {
  std::vector<std::string> lines;
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    const SectionId section(index);
    const GraphNode& node = graph.node(section);
    const bool encoded = node.gradient_wire != GradientWire::f32;
    if (!node.trained() || node.replicas < 2 || (!encoded && !touches_cuda(places, section))) continue;
    const std::vector<ReductionMember> members = replicas_of(graph, section);
    std::int64_t ranks = 0, in_groups = 0;
    for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(node.layout.ranks()); ++rank) {
      if (!node.exchanges(rank)) continue;
      ++ranks;
      in_groups += !by_host && !encoded && on_devices_of_their_own(places, members, LayoutRank(rank)) ? 1 : 0;
    }
    std::string way = in_groups > 0 ? "by NCCL" : "in host memory";
    if (in_groups > 0 && in_groups < ranks) way += " and, for some ranks, in host memory";
    if (encoded) way += node.gradient_wire == GradientWire::bf16 ? ", in bf16" : ", in e4m3, their sums in bf16";
    lines.push_back(node.name + ": gradients of " + std::to_string(node.replicas) + " replicas " + way);
  }
  return lines;
}

}  // namespace maestro
