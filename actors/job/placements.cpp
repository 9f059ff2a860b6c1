// SPDX-License-Identifier: Apache-2.0
#include "actors/job/placements.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/core/printable.hpp"

namespace maestro {

Result<std::vector<Placement>> adopt_placements(const SectionGraph& graph, std::span<const Placement> placements,
                                                ProcessId lost) {
  const std::vector<bool> repeatable = graph.repeatable();
  const auto name = [&](const Placement& placement) { return "section '" + graph.node(placement.section).name + "'"; };
  const auto context = [&](const Placement& placement) {
    return graph.node(placement.section).layout_of(placement.replica).context;
  };
  // Placements by section and context, then process: a replica runs with the weights of another like it.
  std::map<std::pair<SectionId, std::int64_t>, std::map<ProcessId, std::size_t>> hosts;
  for (const Placement& placement : placements) {
    if (placement.process != lost) {
      ++hosts[{placement.section, context(placement)}][placement.process];
    } else if (!repeatable[placement.section.value()]) {
      return Error{ErrorCode::unavailable, name(placement) + " has state that cannot move"};
    }
  }
  std::vector<Placement> moved;
  for (const Placement& placement : placements) {
    if (placement.process != lost) continue;
    auto& alike = hosts[{placement.section, context(placement)}];
    if (alike.empty()) {
      const bool mixed = graph.node(placement.section).mixed();
      return Error{ErrorCode::not_found,
                   "no other process has " + name(placement) +
                       (mixed ? " with context = " + std::to_string(context(placement)) : std::string())};
    }
    const auto fewest = std::ranges::min_element(alike, {}, [](const auto& host) { return host.second; });
    ++fewest->second;
    moved.push_back({placement.section, placement.replica, fewest->first});
  }
  return moved;
}

namespace {

/// Returns the stages of a section that processes may join.
Result<std::vector<SectionId>> movable_stages(const SectionGraph& graph, const std::string& section) {
  const std::vector<SectionId> stages = graph.stages_of(section);
  if (!stages.empty() && graph.node(stages.front()).least > 0) return stages;
  std::string movable;
  for (const GraphNode& node : graph.nodes()) {
    if (node.least > 0 && node.stage == 0) movable += (movable.empty() ? "'" : ", '") + node.section_name() + "'";
  }
  const std::string what = stages.empty() ? "no section is named '" + section + "'"
                                          : "the replicas of section '" + section + "' cannot move";
  return Error{ErrorCode::invalid_argument,
               what + (movable.empty() ? "; in the job file, give a frozen section " : "; processes can join ") +
                   (movable.empty() ? "replicas = {least = 1, most = N} for processes to join" : movable)};
}

}  // namespace

Result<std::vector<Placement>> share_placements(const SectionGraph& graph, std::span<const Placement> placements,
                                                ProcessId joining, const std::string& section) {
  const Result<std::vector<SectionId>> stages = movable_stages(graph, section);
  if (!stages) return stages.error();
  std::vector<Placement> moved;
  for (const SectionId stage : *stages) {
    std::map<ProcessId, std::vector<Placement>> hosts;
    for (const Placement& placement : placements) {
      if (placement.section == stage) hosts[placement.process].push_back(placement);
    }
    const auto replicas = static_cast<std::size_t>(graph.node(stage).replicas);
    if (hosts.contains(joining) || replicas <= hosts.size()) {
      return Error{ErrorCode::unavailable, "each of the " + std::to_string(replicas) + " replicas of section '" +
                                               section + "' already has a separate process"};
    }
    const std::size_t share = replicas / (hosts.size() + 1);
    for (std::size_t taken = 0; taken < share; ++taken) {
      auto& fullest = std::ranges::max_element(hosts, {}, [](const auto& host) { return host.second.size(); })->second;
      moved.push_back({stage, fullest.back().replica, joining});
      fullest.pop_back();
    }
  }
  return moved;
}

namespace {

std::vector<DeviceId> devices_named(const std::string& list, std::int64_t cores) {
  std::vector<DeviceId> devices;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    const std::optional<DeviceId> device = parse_device(name);
    if (!device || device->kind != DeviceId::Kind::cpu || device->index >= cores) {
      throw JobError("--devices: \"" + printable(name) +
                     "\" is not a device here; use cpu:0 to cpu:" + std::to_string(cores - 1));
    }
    devices.push_back(*device);
    begin = end + 1;
  }
  return devices;
}

/// Returns `count` devices of a host, beginning with the least used.
std::vector<DeviceId> least_used(std::span<const ReplicaPlacement> places, std::uint32_t host, std::int64_t cores,
                                 std::int64_t count) {
  std::map<int, std::int64_t> used;
  for (int core = 0; core < cores; ++core) used[core] = 0;
  for (const ReplicaPlacement& place : places) {
    for (const DeviceId& device : place.devices) {
      if (place.host == host && device.kind == DeviceId::Kind::cpu && used.contains(device.index)) ++used[device.index];
    }
  }
  std::vector<DeviceId> devices;
  for (std::int64_t at = 0; at < count; ++at) {
    const auto fewest = std::ranges::min_element(used, {}, [](const auto& core) { return core.second; });
    ++fewest->second;
    devices.push_back({DeviceId::Kind::cpu, fewest->first});
  }
  return devices;
}

}  // namespace

std::vector<ReplicaPlacement> places_of_joining(const SectionGraph& graph, std::span<const ReplicaPlacement> places,
                                                const Joining& joining, const std::string& devices,
                                                std::int64_t cores) {
  const std::vector<SectionId> stages = movable_stages(graph, joining.section).value_or_throw();
  const auto ranks = graph.node(stages.front()).layout.ranks();
  const std::int64_t needed = ranks * std::ssize(stages);
  const bool emulated = std::ranges::any_of(places, [&](const ReplicaPlacement& place) {
    return place.section == stages.front() && place.devices.front().kind == DeviceId::Kind::emulated;
  });
  std::vector<DeviceId> own = devices_named(devices, cores);
  if (own.empty()) {
    own = least_used(places, joining.host, cores, needed * (joining.before + 1));
    own.erase(own.begin(), own.end() - needed);
  }
  if (emulated) {  // emulated devices are not shared
    own.clear();
    for (std::int64_t at = 0; at < needed; ++at) {
      const std::int64_t number = joining.process.value() * needed + at;
      own.push_back({DeviceId::Kind::emulated, static_cast<int>(number), joining.section});
    }
  }
  if (std::ssize(own) != needed) {
    throw JobError("--devices names " + std::to_string(own.size()) + " devices, and a replica of section '" +
                   joining.section + "' needs " + std::to_string(needed));
  }
  std::vector<ReplicaPlacement> placed;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    ReplicaPlacement& place =
        placed.emplace_back(ReplicaPlacement{stages[stage], {}, joining.process, {}, joining.host});
    const auto first = own.begin() + static_cast<std::ptrdiff_t>(stage) * ranks;
    place.devices.assign(first, first + ranks);
  }
  return placed;
}

std::size_t most_joining(const SectionGraph& graph) {
  std::size_t most = 0;
  for (const GraphNode& node : graph.nodes()) {
    if (node.stage == 0) most += static_cast<std::size_t>(node.least > 0 ? node.replicas - 1 : 0);
  }
  return most;
}

void follow_moves(std::vector<Placement>& own, std::span<const Placement> moved, ProcessId process) {
  for (const Placement& placement : moved) {
    std::erase_if(own, [&](const Placement& one) {
      return one.section == placement.section && one.replica == placement.replica;
    });
    if (placement.process == process) own.push_back(placement);
  }
}

std::string text_of(std::span<const Placement> moved, const SectionGraph& graph) {
  std::string text;
  const Placement* before = nullptr;
  for (const Placement& placement : moved) {
    const bool same = before != nullptr && before->process == placement.process && before->section == placement.section;
    if (!same) {
      text += (text.empty() ? "process " : ", process ") + std::to_string(placement.process.value()) +
              " takes section '" + graph.node(placement.section).name + "' replica ";
    }
    text += (same ? " and " : "") + std::to_string(placement.replica.value());
    before = &placement;
  }
  return text;
}

std::vector<Placement> placements_of(const Directory& directory) {
  std::vector<Placement> placements;
  for (const ReplicaAddress& replica : directory.replicas()) {
    placements.push_back({replica.section, replica.replica, replica.process});
  }
  return placements;
}

std::string why_placements_stay(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places) {
  const std::vector<bool> repeatable = graph.repeatable();
  for (const GraphEdge& edge : graph.edges()) {
    if (!repeatable[edge.from.value()]) continue;
    for (const SectionId end : {edge.from, edge.to}) {
      if (touches_cuda(places, end)) return "section '" + graph.node(end).name + "' is on a GPU";
    }
  }
  return {};
}

}  // namespace maestro
