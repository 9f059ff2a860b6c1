// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/transfer_paths.hpp"

#include <algorithm>

namespace maestro {

namespace {

/// Whether a tensor that leaves from host memory changes a way that begins in a device's.
TransferPath by_processor(TransferPath path) {
  switch (path) {
    case TransferPath::same_device:
    case TransferPath::between_gpus:
      return TransferPath::by_host;
    case TransferPath::ipc:
    case TransferPath::device_rma:
    case TransferPath::chunked_rma:
      return TransferPath::staged_rma;
    default:
      return path;
  }
}

TransferPath between_processes(bool from_device, bool to_device, bool by_ipc) {
  if (from_device && to_device) return by_ipc ? TransferPath::ipc : TransferPath::device_rma;
  if (from_device) return TransferPath::chunked_rma;
  return to_device ? TransferPath::staged_rma : TransferPath::rma;
}

TransferPath in_process(const std::string& from, const std::string& to) {
  const bool from_device = is_cuda_device(from);
  const bool to_device = is_cuda_device(to);
  if (!from_device && !to_device) return TransferPath::hand_over;
  if (!from_device || !to_device) return TransferPath::by_host;
  return from == to ? TransferPath::same_device : TransferPath::between_gpus;
}

}  // namespace

std::string_view text_of(TransferPath path) {
  switch (path) {
    case TransferPath::hand_over:
      return "in-process, zero-copy";
    case TransferPath::same_device:
      return "in memory of the device";
    case TransferPath::between_gpus:
      return "by copies between devices";
    case TransferPath::by_host:
      return "by pinned memory";
    case TransferPath::rma:
      return "by RMA";
    case TransferPath::ipc:
      return "by CUDA IPC";
    case TransferPath::device_rma:
      return "from device to device by RMA where it registers, else by pinned memory in chunks";
    case TransferPath::chunked_rma:
      return "by pinned memory in chunks";
    case TransferPath::staged_rma:
      return "by pinned memory and RMA";
  }
  return "?";
}

const ReplicaPlacement* TransferPaths::place(const EdgeEnd& end) const {
  if (places_ == nullptr) return nullptr;
  const ReplicaPlacement* found = find_place(*places_, end.section, end.replica);
  return found != nullptr && end.rank < found->devices.size() ? found : nullptr;
}

bool TransferPaths::on_device(const EdgeEnd& end) const {
  const ReplicaPlacement* at = place(end);
  return at != nullptr && is_cuda_device(at->devices[end.rank]);
}

std::vector<EdgeEnd> TransferPaths::ends(SectionId section) const {
  std::vector<EdgeEnd> all;
  for (const ReplicaPlacement& each : *places_) {
    if (each.section != section) continue;
    for (std::uint32_t rank = 0; rank < each.devices.size(); ++rank) all.push_back({section, each.replica, rank});
  }
  return all;
}

SectionId TransferPaths::sender(const EdgeWay& way) const {
  const GraphEdge& edge = graph_->edge(way.edge);
  return way.gradient ? edge.to : edge.from;
}

SectionId TransferPaths::receiver(const EdgeWay& way) const {
  return sender({way.edge, !way.gradient});
}

bool TransferPaths::read_by_processor(SectionId section, ProcessId process) const {
  return std::ranges::any_of(*places_, [&](const ReplicaPlacement& each) {
    return each.section == section && each.rank == process && !std::ranges::all_of(each.devices, is_cuda_device);
  });
}

bool TransferPaths::leaves_by_host(const EdgeWay& way, const EdgeEnd& from) const {
  if (!on_device(from)) return true;
  if (force_rma_) return false;
  const ProcessId process = place(from)->rank;
  const GraphEdge& sent = graph_->edge(way.edge);
  if (way.gradient) return read_by_processor(sent.from, process);
  return std::ranges::any_of(graph_->edges(), [&](const GraphEdge& other) {
    return other.from == sent.from && other.from_port == sent.from_port && read_by_processor(other.to, process);
  });
}

TransferPath TransferPaths::path(const EdgeWay& way, const EdgeEnd& from, const EdgeEnd& to) const {
  const ReplicaPlacement* sending = place(from);
  const ReplicaPlacement* receiving = place(to);
  if (sending == nullptr || receiving == nullptr) return TransferPath::hand_over;
  const bool apart = sending->rank != receiving->rank || force_rma_;
  const TransferPath planned =
      apart ? between_processes(on_device(from), on_device(to), !force_rma_ && sending->host == receiving->host)
            : in_process(sending->devices[from.rank], receiving->devices[to.rank]);
  return on_device(from) && leaves_by_host(way, from) ? by_processor(planned) : planned;
}

std::set<TransferPath> TransferPaths::leaving(const EdgeWay& way, const EdgeEnd& from) const {
  std::set<TransferPath> paths;
  if (places_ == nullptr) return paths;
  for (const EdgeEnd& to : ends(receiver(way))) paths.insert(path(way, from, to));
  return paths;
}

std::set<TransferPath> TransferPaths::arriving(const EdgeWay& way, const EdgeEnd& to) const {
  std::set<TransferPath> paths;
  if (places_ == nullptr) return paths;
  for (const EdgeEnd& from : ends(sender(way))) paths.insert(path(way, from, to));
  return paths;
}

bool TransferPaths::may_take(TransferPath wanted) const {
  for (std::uint32_t index = 0; places_ != nullptr && index < graph_->edges().size(); ++index) {
    if (!touches_device(graph_->edge(EdgeId(index)))) continue;
    for (const bool gradient : {false, true}) {
      const EdgeWay way{EdgeId(index), gradient};
      if (all(way).contains(wanted)) return true;
    }
  }
  return false;
}

bool TransferPaths::touches_device(const GraphEdge& edge) const {
  return touches_cuda(*places_, edge.from) || touches_cuda(*places_, edge.to);
}

std::string TransferPaths::name_of(const EdgeWay& way) const {
  const GraphEdge& edge = graph_->edge(way.edge);
  const std::string from = graph_->node(edge.from).name + "." + edge.from_port;
  const std::string to = graph_->node(edge.to).name + "." + edge.to_port;
  return way.gradient ? "gradient of " + to + " -> " + from : from + " -> " + to;
}

std::set<TransferPath> TransferPaths::all(const EdgeWay& way) const {
  std::set<TransferPath> paths;
  for (const EdgeEnd& to : ends(receiver(way))) paths.merge(arriving(way, to));
  return paths;
}

std::string TransferPaths::line_of(const EdgeWay& way) const {
  std::string line = name_of(way) + ":";
  const char* separator = " ";
  for (const TransferPath path : all(way)) {
    line += separator + std::string(text_of(path));
    separator = ", ";
  }
  return line;
}

std::vector<std::string> TransferPaths::describe() const {
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
