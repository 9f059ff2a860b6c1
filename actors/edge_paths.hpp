// By which way the tensors of each edge travel, as far as the plan decides it. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

enum class EdgePath : std::uint8_t {
  hand_over,     ///< in one process, by reference
  same_device,   ///< in a device's memory, by reference
  between_gpus,  ///< from one device's memory to another's, by peer copy where the driver has it
  by_host,       ///< a device and a processor of one process, by page-locked memory
  rma,           ///< between processes
  staged_rma     ///< between processes, by page-locked memory of those that compute on devices
};

/// "by page-locked memory and RMA"
[[nodiscard]] std::string_view text_of(EdgePath path);

/// How tensors get from a rank of one replica to a rank of another.
[[nodiscard]] EdgePath edge_path(const ReplicaPlace& from, std::size_t from_rank, const ReplicaPlace& to,
                                 std::size_t to_rank, bool force_rma);

/// By edge: all its tensors stay in memory of devices (ReplicaPortsOptions::direct).
[[nodiscard]] std::vector<bool> direct_edges(const SectionGraph& graph, const std::vector<ReplicaPlace>& places,
                                             bool force_rma);

/// One line per edge that touches a device with memory of its own, each way named once:
/// "teacher.hidden to student.teacher: in memory of the device".
[[nodiscard]] std::vector<std::string> describe_paths(const SectionGraph& graph,
                                                      const std::vector<ReplicaPlace>& places, bool force_rma);

}  // namespace maestro
