// SPDX-License-Identifier: Apache-2.0
#include "actors/job/transfer_paths.hpp"

#include <algorithm>

namespace maestro {

namespace {

/// Returns the path of a tensor that leaves from host memory instead of device memory.
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

TransferPath within_process(const DeviceId& from, const DeviceId& to) {
  if (!from.is_cuda() && !to.is_cuda()) return TransferPath::in_process;
  if (!from.is_cuda() || !to.is_cuda()) return TransferPath::by_host;
  return from == to ? TransferPath::same_device : TransferPath::between_gpus;
}

}  // namespace

std::string_view text_of(TransferPath path) {
  switch (path) {
    case TransferPath::in_process:
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
      return "from device to device by RMA if it registers, else by pinned memory in chunks";
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
  return found != nullptr && end.rank.value() < found->devices.size() ? found : nullptr;
}

bool TransferPaths::on_device(const EdgeEnd& end) const {
  const ReplicaPlacement* at = place(end);
  return at != nullptr && at->devices[end.rank.value()].is_cuda();
}

std::vector<EdgeEnd> TransferPaths::ends(SectionId section) const {
  std::vector<EdgeEnd> all;
  for (const ReplicaPlacement& each : *places_) {
    if (each.section != section) continue;
    for (std::uint32_t rank = 0; rank < each.devices.size(); ++rank)
      all.push_back({section, each.replica, LayoutRank(rank)});
  }
  return all;
}

bool TransferPaths::read_by_processor(SectionId section, ProcessId process) const {
  return std::ranges::any_of(*places_, [&](const ReplicaPlacement& each) {
    return each.section == section && each.process == process && !std::ranges::all_of(each.devices, &DeviceId::is_cuda);
  });
}

bool TransferPaths::leaves_by_host(Channel channel, const EdgeEnd& from) const {
  if (!on_device(from)) return true;
  if (force_rma_) return false;
  const ProcessId process = place(from)->process;
  const GraphEdge& sent = graph_->edge(channel.edge);
  if (channel.gradient()) return read_by_processor(sent.from, process);
  return std::ranges::any_of(graph_->edges(), [&](const GraphEdge& other) {
    return other.from == sent.from && other.from_port == sent.from_port && read_by_processor(other.to, process);
  });
}

TransferPath TransferPaths::path(Channel channel, const EdgeEnd& from, const EdgeEnd& to) const {
  const ReplicaPlacement* sending = place(from);
  const ReplicaPlacement* receiving = place(to);
  if (sending == nullptr || receiving == nullptr) return TransferPath::in_process;
  const bool apart = sending->process != receiving->process || force_rma_;
  const TransferPath planned =
      apart ? between_processes(on_device(from), on_device(to), !force_rma_ && sending->host == receiving->host)
            : within_process(sending->devices[from.rank.value()], receiving->devices[to.rank.value()]);
  return on_device(from) && leaves_by_host(channel, from) ? by_processor(planned) : planned;
}

std::set<TransferPath> TransferPaths::leaving(Channel channel, const EdgeEnd& from) const {
  std::set<TransferPath> paths;
  if (places_ == nullptr) return paths;
  for (const EdgeEnd& to : ends(graph_->receiver(channel))) paths.insert(path(channel, from, to));
  return paths;
}

std::set<TransferPath> TransferPaths::arriving(Channel channel, const EdgeEnd& to) const {
  std::set<TransferPath> paths;
  if (places_ == nullptr) return paths;
  for (const EdgeEnd& from : ends(graph_->sender(channel))) paths.insert(path(channel, from, to));
  return paths;
}

bool TransferPaths::leaves_pinned(Channel channel, const EdgeEnd& from) const {
  if (!leaves_by_host(channel, from)) return false;
  if (on_device(from)) return true;
  // A port has one tensor for all of its edges.
  return places_ != nullptr && std::ranges::any_of(graph_->sent(from.section), [&](Channel other) {
           return other.direction == channel.direction && graph_->sender_port(other) == graph_->sender_port(channel) &&
                  leaving(other, from).contains(TransferPath::by_host);
         });
}

bool TransferPaths::arrives_by_rma(Channel channel, const EdgeEnd& to) const {
  return std::ranges::any_of(arriving(channel, to), [](TransferPath path) { return path >= TransferPath::rma; });
}

bool TransferPaths::arrives_on_device(Channel channel, const EdgeEnd& to) const {
  const std::set<TransferPath> paths = arriving(channel, to);
  return paths.contains(TransferPath::ipc) || paths.contains(TransferPath::device_rma);
}

bool TransferPaths::may_take(TransferPath wanted) const {
  if (places_ == nullptr) return false;
  return std::ranges::any_of(graph_->channels(),
                             [&](Channel channel) { return touches_device(channel) && all(channel).contains(wanted); });
}

bool TransferPaths::touches_device(Channel channel) const {
  return touches_cuda(*places_, graph_->sender(channel)) || touches_cuda(*places_, graph_->receiver(channel));
}

std::set<TransferPath> TransferPaths::all(Channel channel) const {
  std::set<TransferPath> paths;
  for (const EdgeEnd& to : ends(graph_->receiver(channel))) paths.merge(arriving(channel, to));
  return paths;
}

std::string TransferPaths::line_of(Channel channel) const {
  std::string line = graph_->name_of(channel) + ":";
  const char* separator = " ";
  for (const TransferPath path : all(channel)) {
    line += separator + std::string(text_of(path));
    separator = ", ";
  }
  return line;
}

std::vector<std::string> TransferPaths::describe() const {
  std::vector<std::string> lines;
  for (std::uint32_t index = 0; index < graph_->edges().size(); ++index) {
    const Channel values{EdgeId(index), Direction::forward};
    const Channel gradients = values.reversed();
    if (!touches_device(values)) continue;
    lines.push_back(line_of(values));
    if (graph_->edge(values.edge).gradient && all(gradients) != all(values)) lines.push_back(line_of(gradients));
  }
  return lines;
}

}  // namespace maestro
