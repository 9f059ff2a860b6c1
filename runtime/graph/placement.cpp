#include "runtime/graph/placement.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

std::int64_t largest_divisor(std::int64_t degree, std::int64_t most) {
  std::int64_t divisor = std::clamp<std::int64_t>(most, 1, degree);
  while (degree % divisor != 0) --divisor;
  return divisor;
}

std::string core_range(std::int64_t cores) {
  return cores == 1 ? "cpu:0" : "cpu:0 to cpu:" + std::to_string(cores - 1);
}

void check_device(const GraphNode& node, const std::string& device, std::int64_t cores) {
  const std::string where = node.name + ".devices: \"" + device + "\"";
  constexpr std::string_view prefix = "cpu:";
  if (device.rfind("cuda:", 0) == 0) {
    throw JobError(where + ": this build has no CUDA backend; use " + core_range(cores), ErrorCode::unavailable);
  }
  std::int64_t core = -1;
  const char* end = device.data() + device.size();
  const bool named = device.rfind(prefix, 0) == 0;
  const auto parsed = named ? std::from_chars(device.data() + prefix.size(), end, core) : std::from_chars_result{};
  if (!named || parsed.ec != std::errc() || parsed.ptr != end || core < 0) {
    throw JobError(where + " is no device; use " + core_range(cores));
  }
  if (core >= cores) {
    throw JobError(where +
                       (cores == 1 ? ": there is 1 device, " : ": there are " + std::to_string(cores) + " devices, ") +
                       core_range(cores),
                   ErrorCode::unavailable);
  }
}

/// Throws JobError with the nearest layout that fits.
void check_enough(const GraphNode& node, std::int64_t cores) {
  const std::int64_t ranks = node.layout.ranks();
  if (node.replicas * ranks <= cores) return;
  const std::string there = cores == 1 ? "there is 1 device" : "there are " + std::to_string(cores) + " devices";
  const std::string remedy = "; or lay more devices over them with --cpu-devices ";
  if (ranks == 1) {
    throw JobError(node.name + ".replicas = " + std::to_string(node.replicas) + ": " + there + "; use at most " +
                       std::to_string(cores) + remedy + std::to_string(node.replicas),
                   ErrorCode::unavailable);
  }
  const Degrees wanted{node.replicas, 1, node.layout};
  throw JobError(node.name + ": " + text_of(wanted) + " needs " + std::to_string(wanted.devices()) + " devices, and " +
                     there + "; nearest that fits: " + text_of(nearest_fit(wanted, cores)) + remedy +
                     std::to_string(wanted.devices()),
                 ErrorCode::unavailable);
}

std::vector<std::string> devices_of(const GraphNode& node, const std::vector<std::string>& wanted, std::int64_t cores,
                                    std::int64_t& next_core) {
  std::vector<std::string> devices = wanted;
  if (wanted.size() == 1 && wanted[0] == "emulated") {
    devices.clear();
    for (std::int64_t replica = 0; replica < node.replicas; ++replica) {
      devices.push_back("emulated:" + node.name + "/" + std::to_string(replica));
    }
    return devices;
  }
  const std::int64_t needed = node.replicas * node.layout.ranks();
  check_enough(node, cores);
  if (devices.empty()) {
    for (std::int64_t device = 0; device < needed; ++device) {
      devices.push_back("cpu:" + std::to_string(next_core++ % cores));
    }
    return devices;
  }
  if (static_cast<std::int64_t>(devices.size()) != needed) {
    const bool ranks = node.layout.ranks() > 1;
    throw JobError(node.name + ".devices names " + std::to_string(devices.size()) + " devices for " +
                   std::to_string(needed) +
                   (ranks ? " ranks; name one for each rank of each replica" : " replicas; name one for each replica"));
  }
  for (const std::string& device : devices) {
    check_device(node, device, cores);
    if (std::count(devices.begin(), devices.end(), device) > 1) {
      throw JobError(node.name + ".devices: \"" + device +
                     "\" is named twice; the ranks of a section need devices of their own");
    }
  }
  return devices;
}

}  // namespace

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

std::vector<ReplicaPlace> place(const SectionGraph& graph, const PlacementRequest& request) {
  std::int64_t computing = 0;
  for (const GraphNode& node : graph.nodes()) computing += node.mode == Mode::source ? 0 : node.replicas;
  const std::int64_t first_rank = request.processes > computing ? 1 : 0;  // PL-2
  const std::int64_t ranks = request.processes - first_rank;
  std::vector<ReplicaPlace> places;
  std::int64_t next_core = 0;
  std::int64_t next_rank = 0;
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) {
    const GraphNode& node = graph.nodes()[index];
    const bool source = node.mode == Mode::source;
    std::vector<std::string> devices(1, "host");
    if (!source) devices = devices_of(node, request.devices[index], request.cores, next_core);
    const auto per_replica = static_cast<std::size_t>(node.layout.ranks());
    for (std::uint32_t replica = 0; replica * per_replica < devices.size(); ++replica) {
      const std::int64_t rank = source || ranks <= 0 ? 0 : first_rank + next_rank++ % ranks;
      const auto first = devices.begin() + static_cast<std::ptrdiff_t>(replica * per_replica);
      places.push_back({SectionId(index), ReplicaIndex(replica), ProcessRank(static_cast<std::uint32_t>(rank)),
                        std::vector<std::string>(first, first + static_cast<std::ptrdiff_t>(per_replica))});
    }
  }
  return places;
}

}  // namespace maestro
