// SPDX-License-Identifier: Apache-2.0
// Determines the transfer paths of each edge's tensors from the plan. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

enum class TransferPath : std::uint8_t {
  in_process,    ///< inside a process, by reference
  same_device,   ///< in a device's memory, by reference
  between_gpus,  ///< between devices of a process, by peer copy if the driver supports it
  by_host,       ///< between a device and a CPU of the same process, by pinned memory
  rma,           ///< between processes
  ipc,           ///< between processes of the same host, from device to device
  device_rma,    ///< from device to device by the network if it registers device memory; else chunked_rma
  chunked_rma,   ///< from a device to another process, copied to pinned memory and written chunk by chunk
  staged_rma     ///< between processes, by pinned memory of a process that computes on devices
};

/// Returns a description such as "by pinned memory and RMA".
[[nodiscard]] std::string_view text_of(TransferPath path);

/// A rank at an edge's end.
struct EdgeEnd {
  SectionId section;
  ReplicaIndex replica;
  LayoutRank rank = {};
};

/// Transfer paths of a job's channels. A value; graph and places outlive it. Without places no end is on a device.
class TransferPaths {
 public:
  TransferPaths() = default;
  TransferPaths(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places, bool force_rma)
      : graph_(&graph), places_(&places), force_rma_(force_rma) {}

  [[nodiscard]] TransferPath path(Channel channel, const EdgeEnd& sender, const EdgeEnd& receiver) const;
  /// Returns whether the sender's tensor is in host memory: the sender computes on a CPU, or a CPU of its process reads
  /// the tensor, through this or another edge of the same port.
  [[nodiscard]] bool leaves_by_host(Channel channel, const EdgeEnd& sender) const;
  /// Returns the paths to all receivers.
  [[nodiscard]] std::set<TransferPath> leaving(Channel channel, const EdgeEnd& sender) const;
  /// Returns the paths from all senders.
  [[nodiscard]] std::set<TransferPath> arriving(Channel channel, const EdgeEnd& receiver) const;
  /// Returns whether the sender's tensor is in pinned host memory, since a device of its process copies to or from it.
  [[nodiscard]] bool leaves_pinned(Channel channel, const EdgeEnd& sender) const;
  /// Returns whether other processes write into the receiver's ring.
  [[nodiscard]] bool arrives_by_rma(Channel channel, const EdgeEnd& receiver) const;
  /// Returns whether other processes write into the receiver's device memory, if it can be shared.
  [[nodiscard]] bool arrives_on_device(Channel channel, const EdgeEnd& receiver) const;
  /// Returns whether some channel may take that path.
  [[nodiscard]] bool may_take(TransferPath path) const;
  /// Returns a line per edge that touches a CUDA device, with each of its paths:
  /// "teacher.hidden -> student.teacher: in memory of the device". A second line if gradients return on other paths.
  [[nodiscard]] std::vector<std::string> describe() const;

 private:
  [[nodiscard]] const ReplicaPlacement* place(const EdgeEnd& end) const;
  [[nodiscard]] bool on_device(const EdgeEnd& end) const;
  [[nodiscard]] std::vector<EdgeEnd> ends(SectionId section) const;
  /// Returns whether some rank of the section runs on a CPU of that process.
  [[nodiscard]] bool read_by_processor(SectionId section, ProcessId process) const;
  [[nodiscard]] bool touches_device(Channel channel) const;
  /// Returns the paths between all ends.
  [[nodiscard]] std::set<TransferPath> all(Channel channel) const;
  [[nodiscard]] std::string line_of(Channel channel) const;

  const SectionGraph* graph_ = nullptr;
  const std::vector<ReplicaPlacement>* places_ = nullptr;
  bool force_rma_ = false;
};

}  // namespace maestro
