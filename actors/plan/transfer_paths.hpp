// SPDX-License-Identifier: Apache-2.0
// By which way the tensors of each edge travel, as far as the plan decides it. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

enum class TransferPath : std::uint8_t {
  hand_over,     ///< in one process, by reference
  same_device,   ///< in a device's memory, by reference
  between_gpus,  ///< from one device's memory to another's, by peer copy where the driver has it
  by_host,       ///< a device and a CPU of one process, by pinned memory
  rma,           ///< between processes
  ipc,           ///< between processes of one host, from one device's memory to another's
  device_rma,    ///< likewise by the network, where it reaches memory of devices; else as chunked_rma
  chunked_rma,   ///< from a device to another process, copied to pinned memory and written chunk by chunk
  staged_rma     ///< between processes, by pinned memory of those that compute on devices
};

/// "by pinned memory and RMA"
[[nodiscard]] std::string_view text_of(TransferPath path);

/// One end of an edge.
struct EdgeEnd {
  SectionId section;
  ReplicaIndex replica;
  std::uint32_t rank = 0;  ///< of the section's layout
};

/// An edge as one of its ends sends: its values, or their gradients, which go back.
struct EdgeWay {
  EdgeId edge;
  bool gradient = false;
};

/// The ways of all edges of a job. A value; graph and places outlive it. Without places no end is on a device.
class TransferPaths {
 public:
  TransferPaths() = default;
  TransferPaths(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places, bool force_rma)
      : graph_(&graph), places_(&places), force_rma_(force_rma) {}

  [[nodiscard]] TransferPath path(const EdgeWay& way, const EdgeEnd& sender, const EdgeEnd& receiver) const;
  /// What leaves there lies in host memory: the sender works in it, or a CPU of its process reads it,
  /// by this edge or by another one from the same port.
  [[nodiscard]] bool leaves_by_host(const EdgeWay& way, const EdgeEnd& sender) const;
  /// The ways to all receivers.
  [[nodiscard]] std::set<TransferPath> leaving(const EdgeWay& way, const EdgeEnd& sender) const;
  /// The ways from all senders.
  [[nodiscard]] std::set<TransferPath> arriving(const EdgeWay& way, const EdgeEnd& receiver) const;
  /// Some edge may take that way, or the gradients that come back along it.
  [[nodiscard]] bool may_take(TransferPath path) const;
  /// One line per edge that touches a device with memory of its own, each way named once:
  /// "teacher.hidden to student.teacher: in memory of the device". One more where gradients come back another way.
  [[nodiscard]] std::vector<std::string> describe() const;
  /// "teacher.hidden to student.teacher", or the other way round for gradients.
  [[nodiscard]] std::string name_of(const EdgeWay& way) const;

 private:
  [[nodiscard]] const ReplicaPlacement* place(const EdgeEnd& end) const;
  [[nodiscard]] bool on_device(const EdgeEnd& end) const;
  [[nodiscard]] std::vector<EdgeEnd> ends(SectionId section) const;
  [[nodiscard]] SectionId sender(const EdgeWay& way) const;
  [[nodiscard]] SectionId receiver(const EdgeWay& way) const;
  /// Some rank of the section works on a CPU of that process.
  [[nodiscard]] bool read_by_processor(SectionId section, ProcessId process) const;
  [[nodiscard]] bool touches_device(const GraphEdge& edge) const;
  /// Between all ends.
  [[nodiscard]] std::set<TransferPath> all(const EdgeWay& way) const;
  [[nodiscard]] std::string line_of(const EdgeWay& way) const;

  const SectionGraph* graph_ = nullptr;
  const std::vector<ReplicaPlacement>* places_ = nullptr;
  bool force_rma_ = false;
};

}  // namespace maestro
