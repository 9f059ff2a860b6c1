// SPDX-License-Identifier: Apache-2.0
#include "actors/edge_paths.hpp"

#include <algorithm>

namespace maestro {

namespace {

/// Whether a tensor that leaves from the processor's memory changes a way that begins in a device's.
EdgePath by_processor(EdgePath path) {
  switch (path) {
    case EdgePath::same_device:
    case EdgePath::between_gpus:
      return EdgePath::by_host;
    case EdgePath::ipc:
    case EdgePath::device_rma:
    case EdgePath::chunked_rma:
      return EdgePath::staged_rma;
    default:
      return path;
  }
}

EdgePath between_processes(bool from_device, bool to_device, bool by_ipc) {
  if (from_device && to_device) return by_ipc ? EdgePath::ipc : EdgePath::device_rma;
  if (from_device) return EdgePath::chunked_rma;
  return to_device ? EdgePath::staged_rma : EdgePath::rma;
}

EdgePath in_process(const std::string& from, const std::string& to) {
  const bool from_device = is_cuda_device(from);
  const bool to_device = is_cuda_device(to);
  if (!from_device && !to_device) return EdgePath::hand_over;
  if (!from_device || !to_device) return EdgePath::by_host;
  return from == to ? EdgePath::same_device : EdgePath::between_gpus;
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
    case EdgePath::ipc:
      return "by CUDA IPC";
    case EdgePath::device_rma:
      return "from device to device by RMA where it registers, else by page-locked memory in chunks";
    case EdgePath::chunked_rma:
      return "by page-locked memory in chunks";
    case EdgePath::staged_rma:
      return "by page-locked memory and RMA";
  }
  return "?";
}

const ReplicaPlace* JobPaths::place(const EdgeEnd& end) const {
  if (places_ == nullptr) return nullptr;
  const ReplicaPlace* found = find_place(*places_, end.section, end.replica);
  return found != nullptr && end.rank < found->devices.size() ? found : nullptr;
}

bool JobPaths::on_device(const EdgeEnd& end) const {
  const ReplicaPlace* at = place(end);
  return at != nullptr && is_cuda_device(at->devices[end.rank]);
}

std::vector<EdgeEnd> JobPaths::ends(SectionId section) const {
  std::vector<EdgeEnd> all;
  for (const ReplicaPlace& each : *places_) {
    if (each.section != section) continue;
    for (std::uint32_t rank = 0; rank < each.devices.size(); ++rank) all.push_back({section, each.replica, rank});
  }
  return all;
}

SectionId JobPaths::sender(const EdgeWay& way) const {
  const GraphEdge& edge = graph_->edge(way.edge);
  return way.gradient ? edge.to : edge.from;
}

SectionId JobPaths::receiver(const EdgeWay& way) const {
  return sender({way.edge, !way.gradient});
}

bool JobPaths::read_by_processor(SectionId section, ProcessRank process) const {
  return std::ranges::any_of(*places_, [&](const ReplicaPlace& each) {
    return each.section == section && each.rank == process && !std::ranges::all_of(each.devices, is_cuda_device);
  });
}

bool JobPaths::leaves_by_host(const EdgeWay& way, const EdgeEnd& from) const {
  if (!on_device(from)) return true;
  if (force_rma_) return false;
  const ProcessRank process = place(from)->rank;
  const GraphEdge& sent = graph_->edge(way.edge);
  if (way.gradient) return read_by_processor(sent.from, process);
  return std::ranges::any_of(graph_->edges(), [&](const GraphEdge& other) {
    return other.from == sent.from && other.from_port == sent.from_port && read_by_processor(other.to, process);
  });
}

EdgePath JobPaths::path(const EdgeWay& way, const EdgeEnd& from, const EdgeEnd& to) const {
  const ReplicaPlace* sending = place(from);
  const ReplicaPlace* receiving = place(to);
  if (sending == nullptr || receiving == nullptr) return EdgePath::hand_over;
  const bool apart = sending->rank != receiving->rank || force_rma_;
  const EdgePath planned =
      apart ? between_processes(on_device(from), on_device(to), !force_rma_ && sending->host == receiving->host)
            : in_process(sending->devices[from.rank], receiving->devices[to.rank]);
  return on_device(from) && leaves_by_host(way, from) ? by_processor(planned) : planned;
}

std::set<EdgePath> JobPaths::leaving(const EdgeWay& way, const EdgeEnd& from) const {
  std::set<EdgePath> paths;
  if (places_ == nullptr) return paths;
  for (const EdgeEnd& to : ends(receiver(way))) paths.insert(path(way, from, to));
  return paths;
}

std::set<EdgePath> JobPaths::arriving(const EdgeWay& way, const EdgeEnd& to) const {
  std::set<EdgePath> paths;
  if (places_ == nullptr) return paths;
  for (const EdgeEnd& from : ends(sender(way))) paths.insert(path(way, from, to));
  return paths;
}

bool JobPaths::may_take(EdgePath wanted) const {
  for (std::uint32_t index = 0; places_ != nullptr && index < graph_->edges().size(); ++index) {
    if (!touches_device(graph_->edge(EdgeId(index)))) continue;
    for (const bool gradient : {false, true}) {
      const EdgeWay way{EdgeId(index), gradient};
      if (all(way).contains(wanted)) return true;
    }
  }
  return false;
}

bool JobPaths::touches_device(const GraphEdge& edge) const {
  return touches_cuda(*places_, edge.from) || touches_cuda(*places_, edge.to);
}

std::string JobPaths::name_of(const EdgeWay& way) const {
  const GraphEdge& edge = graph_->edge(way.edge);
  const std::string from = graph_->node(edge.from).name + "." + edge.from_port;
  const std::string to = graph_->node(edge.to).name + "." + edge.to_port;
  return way.gradient ? "the gradient of " + to + " to " + from : from + " to " + to;
}

std::set<EdgePath> JobPaths::all(const EdgeWay& way) const {
  std::set<EdgePath> paths;
  for (const EdgeEnd& to : ends(receiver(way))) paths.merge(arriving(way, to));
  return paths;
}

std::string JobPaths::line_of(const EdgeWay& way) const {
  std::string line = name_of(way) + ":";
  const char* separator = " ";
  for (const EdgePath path : all(way)) {
    line += separator + std::string(text_of(path));
    separator = ", ";
  }
  return line;
}

std::vector<std::string> JobPaths::describe() const {
  std::vector<std::string> lines;
  for (std::uint32_t index = 0; index < graph_->edges().size(); ++index) {
    const EdgeWay values{EdgeId(index), false};
    const EdgeWay gradients{EdgeId(index), true};
    const GraphEdge& edge = graph_->edge(values.edge);
    if (!touches_device(edge)) continue;
    lines.push_back(line_of(values));
    if (edge.gradient && all(gradients) != all(values)) lines.push_back(line_of(gradients));
  }
  return lines;
}

}  // namespace maestro
