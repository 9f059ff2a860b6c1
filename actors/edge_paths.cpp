#include "actors/edge_paths.hpp"

#include <set>

namespace maestro {

namespace {

/// The ways between all ranks of all replicas of an edge's two sections.
std::set<EdgePath> paths_of(const GraphEdge& edge, const std::vector<ReplicaPlace>& places, bool force_rma) {
  std::set<EdgePath> paths;
  for (const ReplicaPlace& from : places) {
    if (from.section != edge.from) continue;
    for (const ReplicaPlace& to : places) {
      if (to.section != edge.to) continue;
      for (std::size_t from_rank = 0; from_rank < from.devices.size(); ++from_rank) {
        for (std::size_t to_rank = 0; to_rank < to.devices.size(); ++to_rank) {
          paths.insert(edge_path(from, from_rank, to, to_rank, force_rma));
        }
      }
    }
  }
  return paths;
}

bool touches_device(const GraphEdge& edge, const std::vector<ReplicaPlace>& places) {
  for (const ReplicaPlace& place : places) {
    if (place.section != edge.from && place.section != edge.to) continue;
    for (const std::string& device : place.devices) {
      if (is_cuda_device(device)) return true;
    }
  }
  return false;
}

bool stays_on_devices(const std::set<EdgePath>& paths) {
  for (const EdgePath path : paths) {
    if (path != EdgePath::same_device && path != EdgePath::between_gpus) return false;
  }
  return !paths.empty();
}

}  // namespace

std::string_view text_of(EdgePath path) {
  switch (path) {
    case EdgePath::hand_over:
      return "by hand-over";
    case EdgePath::same_device:
      return "in memory of the device";
    case EdgePath::between_gpus:
      return "by copies between devices";
    case EdgePath::by_host:
      return "by page-locked memory";
    case EdgePath::rma:
      return "by RMA";
    case EdgePath::staged_rma:
      return "by page-locked memory and RMA";
  }
  return "?";
}

EdgePath edge_path(const ReplicaPlace& from, std::size_t from_rank, const ReplicaPlace& to, std::size_t to_rank,
                   bool force_rma) {
  const std::string& sender = from.devices.at(from_rank);
  const std::string& receiver = to.devices.at(to_rank);
  const bool any = is_cuda_device(sender) || is_cuda_device(receiver);
  if (from.rank != to.rank || force_rma) return any ? EdgePath::staged_rma : EdgePath::rma;
  if (!any) return EdgePath::hand_over;
  if (!is_cuda_device(sender) || !is_cuda_device(receiver)) return EdgePath::by_host;
  return sender == receiver ? EdgePath::same_device : EdgePath::between_gpus;
}

std::vector<bool> direct_edges(const SectionGraph& graph, const std::vector<ReplicaPlace>& places, bool force_rma) {
  std::vector<bool> direct;
  for (const GraphEdge& edge : graph.edges()) direct.push_back(stays_on_devices(paths_of(edge, places, force_rma)));
  return direct;
}

std::vector<std::string> describe_paths(const SectionGraph& graph, const std::vector<ReplicaPlace>& places,
                                        bool force_rma) {
  std::vector<std::string> lines;
  for (const GraphEdge& edge : graph.edges()) {
    if (!touches_device(edge, places)) continue;
    std::set<EdgePath> paths = paths_of(edge, places, force_rma);
    // One pool serves a port: where some receivers need it in the processor's memory, all take it there.
    if (!stays_on_devices(paths) && (paths.erase(EdgePath::same_device) + paths.erase(EdgePath::between_gpus)) > 0) {
      paths.insert(EdgePath::by_host);
    }
    std::string line = graph.node(edge.from).name + "." + edge.from_port + " to " + graph.node(edge.to).name + "." +
                       edge.to_port + ":";
    const char* separator = " ";
    for (const EdgePath path : paths) {
      line += separator + std::string(text_of(path));
      separator = ", ";
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace maestro
