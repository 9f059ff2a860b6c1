// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/placement.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "runtime/core/result.hpp"
#include "runtime/graph/replica_mix.hpp"

namespace maestro {

namespace {

std::int64_t largest_divisor(std::int64_t degree, std::int64_t most) {
  std::int64_t divisor = std::clamp<std::int64_t>(most, 1, degree);
  while (degree % divisor != 0) --divisor;
  return divisor;
}

/// Returns "cpu:0 to cpu:3".
std::string range_text(DeviceId::Kind kind, std::int64_t count) {
  const std::string first = text_of({kind, 0});
  return count == 1 ? first : first + " to " + text_of({kind, static_cast<int>(count - 1)});
}

void check_device(const GraphNode& node, const DeviceId& device, const PlacementRequest& request) {
  if (device.numbered) return;
  const std::string where = node.name + ".devices: \"" + text_of(device) + "\"";
  const bool cuda = device.is_cuda();
  const DeviceId::Kind kind = cuda ? DeviceId::Kind::cuda : DeviceId::Kind::cpu;
  if (cuda && request.cuda.of_host == 0) {
    throw JobError(where + ": " + request.cuda.missing + "; use " + range_text(DeviceId::Kind::cpu, request.cores),
                   ErrorCode::unavailable);
  }
  const std::int64_t there = cuda ? request.cuda.of_host : request.cores;
  if (device.kind != kind) throw JobError(where + " is not a device; use " + range_text(kind, there));
  if (device.index < there) return;
  const std::string what = cuda ? "CUDA device" : "device";
  throw JobError(where +
                     (there == 1 ? ": there is 1 " + what : ": there are " + std::to_string(there) + " " + what + "s") +
                     ", " + range_text(kind, there),
                 ErrorCode::unavailable);
}

/// Returns whether passes on a section's devices are timed waits.
bool are_emulated(const std::vector<DeviceId>& wanted) {
  return !wanted.empty() && wanted[0].kind == DeviceId::Kind::emulated && (wanted[0].numbered || wanted.size() == 1);
}

/// Processes of numbered emulated devices (PL-5).
class EmulatedOwners {
 public:
  /// Returns the process of the first device that has one.
  [[nodiscard]] std::optional<std::int64_t> process_of(std::span<const DeviceId> devices) const {
    for (const DeviceId& device : devices) {
      if (const auto found = owners_.find(device); found != owners_.end()) return found->second.process;
    }
    return std::nullopt;
  }
  void take(const GraphNode& node, const ReplicaPlacement& place) {
    for (const DeviceId& device : place.devices) {
      if (!device.numbered) continue;
      const Owner& owner = owners_.try_emplace(device, Owner{place.process.value(), node.name}).first->second;
      if (owner.process == place.process.value()) continue;
      throw JobError(node.name + ".devices: \"" + text_of(device) + "\" of replica " +
                     std::to_string(place.replica.value()) + " is in process " + std::to_string(place.process.value()) +
                     ", and for " + owner.section + " in process " + std::to_string(owner.process) +
                     "; an emulated device is in one process: name another device, or process " +
                     std::to_string(owner.process) + " in processes");
    }
  }

 private:
  struct Owner {
    std::int64_t process = 0;
    std::string section;
  };
  std::map<DeviceId, Owner> owners_;
};

/// Machines of a job, while sections are placed on them in order.
class Hosts {
 public:
  explicit Hosts(const PlacementRequest& request) : request_(request) {
    if (!request.hosts.empty()) count_ = *std::ranges::max_element(request.hosts) + 1;
    next_device_.resize(count_);
  }
  [[nodiscard]] std::uint32_t of(std::int64_t process) const {
    return request_.hosts.empty() ? 0 : request_.hosts.at(static_cast<std::size_t>(process));
  }
  [[nodiscard]] std::int64_t devices() const { return request_.cores * static_cast<std::int64_t>(count_); }
  [[nodiscard]] std::string devices_text() const {
    const std::string all =
        devices() == 1 ? "there is 1 device" : "there are " + std::to_string(devices()) + " devices";
    if (count_ == 1) return all;
    return all + ", " + std::to_string(request_.cores) + " on each of " + std::to_string(count_) + " hosts";
  }
  [[nodiscard]] DeviceId next_device(std::uint32_t host) {
    return {DeviceId::Kind::cpu, static_cast<int>(next_device_[host]++ % request_.cores)};
  }

 private:
  const PlacementRequest& request_;
  std::size_t count_ = 1;
  std::vector<std::int64_t> next_device_;
};

/// Throws JobError with the nearest layout that fits.
void refuse(const GraphNode& node, const Hosts& hosts) {
  const std::string remedy = "; or oversubscribe the cores with --cpu-devices ";
  if (node.mixed()) {
    const std::int64_t needed = node.ranks_before(node.replicas);
    throw JobError(node.name + ".replicas = " + text_of_mix(node.contexts) +
                       " with tensor = " + std::to_string(node.layout.tensor) + " needs " + std::to_string(needed) +
                       " devices, and " + hosts.devices_text() + "; nearest that fits: replicas = " +
                       text_of_mix(nearest_mix(node.contexts, node.layout.tensor, hosts.devices())) + remedy +
                       std::to_string(needed),
                   ErrorCode::unavailable);
  }
  if (node.layout.ranks() == 1) {
    throw JobError(node.name + (node.least > 0 ? ".replicas.least = " : ".replicas = ") +
                       std::to_string(node.placed()) + ": " + hosts.devices_text() + "; use at most " +
                       std::to_string(hosts.devices()) + remedy + std::to_string(node.placed()),
                   ErrorCode::unavailable);
  }
  const Degrees wanted{node.placed(), 1, node.layout};
  throw JobError(node.name + ": " + text_of(wanted) + " needs " + std::to_string(wanted.devices()) + " devices, and " +
                     hosts.devices_text() + "; nearest that fits: " + text_of(nearest_fit(wanted, hosts.devices())) +
                     remedy + std::to_string(wanted.devices()),
                 ErrorCode::unavailable);
}

void check_named(const GraphNode& node, const std::vector<DeviceId>& devices, const PlacementRequest& request) {
  const std::int64_t needed = node.ranks_before(node.placed());
  if (static_cast<std::int64_t>(devices.size()) != needed) {
    const bool ranks = node.layout.ranks() > 1;
    throw JobError(node.name + ".devices names " + std::to_string(devices.size()) + " devices for " +
                   std::to_string(needed) +
                   (ranks ? " ranks; name one for each rank of each replica" : " replicas; name one for each replica"));
  }
  for (const DeviceId& device : devices) check_device(node, device, request);
}

/// Places the replicas of sections, section by section.
class Placer {
 public:
  Placer(const PlacementRequest& request, std::int64_t first_rank)
      : request_(request), hosts_(request), first_rank_(first_rank) {}

  /// Places a section on the devices of another, which has been placed (PL-6).
  [[nodiscard]] std::vector<ReplicaPlacement> on_devices(SectionId id, const GraphNode& node, std::size_t pipeline,
                                                         const std::vector<const ReplicaPlacement*>& others) {
    std::vector<std::pair<const ReplicaPlacement*, DeviceId>> ranks;
    for (const ReplicaPlacement* other : others) {
      for (const DeviceId& device : other->devices) ranks.emplace_back(other, device);
    }
    std::vector<ReplicaPlacement> places;
    for (std::uint32_t replica = 0; replica < node.replicas; ++replica) {
      const auto before = pipeline * static_cast<std::size_t>(node.ranks_before(replica));
      const auto all = static_cast<std::size_t>(node.layout_of(ReplicaIndex(replica)).ranks());
      const auto own = std::span(ranks).subspan(before + static_cast<std::size_t>(node.stage) * all, all);
      const ReplicaPlacement& first = *own.front().first;
      ReplicaPlacement place{id, ReplicaIndex(replica), first.process, {}, first.host};
      for (const auto& [other, device] : own) {
        place.devices.push_back(device);
        if (other->process == first.process) continue;
        throw JobError(node.section_name() + ".devices: replica " + std::to_string(replica) +
                       " would be in processes " + std::to_string(first.process.value()) + " and " +
                       std::to_string(other->process.value()) + ", as the devices of " +
                       request_.devices_of[id.value()] +
                       " are; a replica is in one process: use fewer devices for each (tensor, context)");
      }
      places.push_back(std::move(place));
    }
    return places;
  }

  [[nodiscard]] std::vector<ReplicaPlacement> section(SectionId id, const GraphNode& node) {
    if (node.role == Role::source) return {{id, ReplicaIndex(0), ProcessId(0), {DeviceId()}, hosts_.of(0)}};
    const std::vector<DeviceId>& wanted = request_.devices[id.value()];
    const bool emulated = are_emulated(wanted);
    const bool named = !wanted.empty() && !(emulated && !wanted[0].numbered);
    if (wanted.empty() && node.ranks_before(node.placed()) > hosts_.devices()) refuse(node, hosts_);
    if (named) check_named(node, wanted, request_);
    per_host_ = request_.cores + (wanted.empty() ? 0 : request_.cuda.of_host);
    std::vector<ReplicaPlacement> places;
    std::map<std::uint32_t, std::int64_t> taken;  // devices of this section, by host
    for (std::uint32_t replica = 0; replica < node.placed(); ++replica) {
      const auto owner = emulated && named ? owners_.process_of(of_replica(node, wanted, replica)) : std::nullopt;
      const std::int64_t ranks = node.layout_of(ReplicaIndex(replica)).ranks();
      const std::int64_t process = !named_processes(id).empty()
                                       ? named_process(node, named_processes(id)[replica], emulated ? 0 : ranks, taken)
                                   : owner ? *owner
                                           : next_process(node, emulated ? 0 : ranks, taken);
      ReplicaPlacement place{
          id, ReplicaIndex(replica), ProcessId(static_cast<std::uint32_t>(process)), {}, hosts_.of(process)};
      place.devices = emulated && !named ? own_devices(node, replica) : devices_of(node, wanted, place);
      owners_.take(node, place);
      places.push_back(std::move(place));
    }
    check_distinct(node, places);
    for (std::uint32_t replica = static_cast<std::uint32_t>(places.size()); replica < node.replicas; ++replica) {
      ReplicaPlacement place = places[replica % static_cast<std::uint32_t>(node.placed())];
      place.replica = ReplicaIndex(replica);
      place.shares = true;
      places.push_back(std::move(place));
    }
    return places;
  }

 private:
  [[nodiscard]] const std::vector<std::int64_t>& named_processes(SectionId id) const {
    static const std::vector<std::int64_t> none;
    return id.value() < request_.processes_of.size() ? request_.processes_of[id.value()] : none;
  }
  /// Returns the process that a section names for a replica with so many devices of its host.
  std::int64_t named_process(const GraphNode& node, std::int64_t process, std::int64_t devices,
                             std::map<std::uint32_t, std::int64_t>& taken) {
    const std::string where = node.name + ".processes: " + std::to_string(process);
    if (process >= request_.processes) {
      throw JobError(where + " is no process of the job; it has " + std::to_string(request_.processes) +
                         (request_.processes == 1 ? ", 0" : ", 0 to " + std::to_string(request_.processes - 1)) +
                         " (--processes)",
                     ErrorCode::unavailable);
    }
    std::int64_t& used = taken[hosts_.of(process)];
    used += devices;
    if (used <= per_host_) return process;
    throw JobError(where + ": its host has " + std::to_string(per_host_) + (per_host_ == 1 ? " device" : " devices") +
                       ", and the section's replicas there need " + std::to_string(used) +
                       "; name another process, or oversubscribe the cores with --cpu-devices " + std::to_string(used),
                   ErrorCode::unavailable);
  }
  /// Returns the next process in turn, skipping processes whose host lacks so many devices for this section.
  std::int64_t next_process(const GraphNode& node, std::int64_t devices, std::map<std::uint32_t, std::int64_t>& taken) {
    const std::int64_t ranks = request_.processes - first_rank_;
    if (ranks <= 0) return 0;
    for (std::int64_t tried = 0; tried < ranks; ++tried) {
      const std::int64_t process = first_rank_ + next_rank_++ % ranks;
      std::int64_t& used = taken[hosts_.of(process)];
      if (used + devices > per_host_) continue;
      used += devices;
      return process;
    }
    refuse(node, hosts_);
    return 0;
  }
  std::vector<DeviceId> devices_of(const GraphNode& node, const std::vector<DeviceId>& wanted,
                                   const ReplicaPlacement& place) {
    if (!wanted.empty()) {
      const auto named = of_replica(node, wanted, place.replica.value());
      return {named.begin(), named.end()};
    }
    std::vector<DeviceId> devices;
    const std::int64_t ranks = node.layout_of(place.replica).ranks();
    for (std::int64_t rank = 0; rank < ranks; ++rank) devices.push_back(hosts_.next_device(place.host));
    return devices;
  }
  static std::span<const DeviceId> of_replica(const GraphNode& node, const std::vector<DeviceId>& wanted,
                                              std::uint32_t replica) {
    const std::int64_t first = node.ranks_before(replica);
    const std::int64_t ranks = node.layout_of(ReplicaIndex(replica)).ranks();
    return std::span(wanted).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(ranks));
  }
  /// Returns emulated devices that only these ranks use.
  static std::vector<DeviceId> own_devices(const GraphNode& node, std::uint32_t replica) {
    const auto first = static_cast<int>(node.ranks_before(replica));
    const auto end = static_cast<int>(node.ranks_before(replica + 1));
    std::vector<DeviceId> devices;
    for (int device = first; device < end; ++device) {
      devices.push_back({DeviceId::Kind::emulated, device, node.name});
    }
    return devices;
  }
  static void check_distinct(const GraphNode& node, const std::vector<ReplicaPlacement>& places) {
    std::set<std::pair<std::uint32_t, DeviceId>> taken;
    for (const ReplicaPlacement& place : places) {
      for (const DeviceId& device : place.devices) {
        if (taken.emplace(place.host, device).second) continue;
        throw JobError(node.name + ".devices: \"" + text_of(device) + "\" is named twice; the ranks of a " +
                       (device.numbered ? "replica" : "section") + " need devices of their own");
      }
      if (place.devices.front().numbered) taken.clear();  // PL-5
    }
  }

  const PlacementRequest& request_;
  Hosts hosts_;
  EmulatedOwners owners_;
  std::int64_t first_rank_;
  std::int64_t next_rank_ = 0;
  std::int64_t per_host_ = 1;  // devices per host that the current section may take
};

}  // namespace

const ReplicaPlacement* find_place(const std::vector<ReplicaPlacement>& places, SectionId section,
                                   ReplicaIndex replica) {
  const auto found = std::ranges::find_if(
      places, [&](const ReplicaPlacement& each) { return each.section == section && each.replica == replica; });
  return found == places.end() ? nullptr : &*found;
}

bool touches_cuda(const std::vector<ReplicaPlacement>& places, SectionId section) {
  return std::ranges::any_of(places, [&](const ReplicaPlacement& each) {
    return each.section == section && std::ranges::any_of(each.devices, &DeviceId::is_cuda);
  });
}

Degrees nearest_fit(const Degrees& wanted, std::int64_t devices) {
  Degrees fit = wanted;
  fit.layout.context = largest_divisor(wanted.layout.context, devices / wanted.layout.tensor);
  fit.layout.tensor = largest_divisor(wanted.layout.tensor, devices / fit.layout.context);
  fit.pipeline = std::clamp<std::int64_t>(devices / fit.layout.ranks(), 1, wanted.pipeline);
  fit.replicas = std::clamp<std::int64_t>(devices / (fit.layout.ranks() * fit.pipeline), 1, wanted.replicas);
  return fit;
}

std::string text_of(const Degrees& degrees) {
  return "replicas x pipeline x context x tensor = " + std::to_string(degrees.replicas) + " x " +
         std::to_string(degrees.pipeline) + " x " + std::to_string(degrees.layout.context) + " x " +
         std::to_string(degrees.layout.tensor);
}

std::vector<ReplicaPlacement> place(const SectionGraph& graph, const PlacementRequest& request) {
  std::int64_t computing = 0;
  for (const GraphNode& node : graph.nodes()) computing += node.role == Role::source ? 0 : node.placed();
  const std::int64_t first_rank = request.processes > computing ? 1 : 0;  // PL-2
  Placer placer(request, first_rank);
  const auto other_of = [&](std::size_t index) {
    return index < request.devices_of.size() ? request.devices_of[index] : std::string();
  };
  std::vector<std::vector<ReplicaPlacement>> by_section(graph.nodes().size());
  const auto first_chunks = [&](const std::string& section) {  // whose devices count
    std::vector<SectionId> stages = graph.stages_of(section);
    std::erase_if(stages, [&](SectionId stage) { return request.chunk_of.contains(stage); });
    return stages;
  };
  const auto as_chunk = [&](std::uint32_t index) {  // PL-7
    const auto chunk = request.chunk_of.find(SectionId(index));
    if (chunk == request.chunk_of.end()) return false;
    by_section[index] = by_section[chunk->second.value()];
    for (ReplicaPlacement& place : by_section[index]) place.section = SectionId(index);
    return true;
  };
  for (std::uint32_t index = 0; index < by_section.size(); ++index) {
    if (!other_of(index).empty() || as_chunk(index)) continue;
    by_section[index] = placer.section(SectionId(index), graph.nodes()[index]);
  }
  for (std::uint32_t index = 0; index < by_section.size(); ++index) {
    if (other_of(index).empty() || as_chunk(index)) continue;
    std::vector<const ReplicaPlacement*> others;  // by replica, then stage
    const std::vector<SectionId> stages = first_chunks(other_of(index));
    for (std::size_t replica = 0; replica < static_cast<std::size_t>(graph.node(stages.front()).placed()); ++replica) {
      for (const SectionId stage : stages) others.push_back(&by_section[stage.value()][replica]);
    }
    by_section[index] = placer.on_devices(SectionId(index), graph.nodes()[index],
                                          first_chunks(graph.nodes()[index].section_name()).size(), others);
  }
  std::vector<ReplicaPlacement> places;
  for (std::vector<ReplicaPlacement>& section : by_section) std::ranges::move(section, std::back_inserter(places));
  return places;
}

}  // namespace maestro
