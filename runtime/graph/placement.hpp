// SPDX-License-Identifier: Apache-2.0
// Assignment of section replicas to processes and devices. Pure.
//
// PL-1 (distinct devices): the ranks of all replicas of a section are on distinct devices, but for PL-4 and PL-5.
// PL-2 (sources on rank 0): rank 0 always hosts sources; with enough processes it hosts nothing else, but for a section
//       that names its processes.
// PL-3 (one host per replica): the ranks of a replica are on devices of a single host, that of its process.
// PL-4 (shared seats): of a section with `least`, so many replicas are placed like those of any section; each further
//       replica shares process and devices of one of them, in turn.
// PL-5 (numbered emulated devices): replicas of any sections may share one, ranks of a replica do not. It is in a
//       single process: a replica that names no process is in that of its devices.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/device_id.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct ReplicaPlacement {
  SectionId section;
  ReplicaIndex replica;
  ProcessId process;
  std::vector<DeviceId> devices;  ///< by rank; of a source, the host
  std::uint32_t host = 0;         ///< of the process: devices of two hosts may be equal
  bool shares = false;            ///< process and devices are those of an earlier replica (PL-4)
};

/// Returns null if there is none.
[[nodiscard]] const ReplicaPlacement* find_place(const std::vector<ReplicaPlacement>& places, SectionId section,
                                                 ReplicaIndex replica);
/// Returns whether some rank of the section runs on a GPU.
[[nodiscard]] bool touches_cuda(const std::vector<ReplicaPlacement>& places, SectionId section);

/// The GPUs that a job may name.
struct CudaDevices {
  std::int64_t of_host = 0;                                ///< on each host
  std::string missing = "this build has no CUDA backend";  ///< why there are none
};

struct PlacementRequest {
  std::int64_t processes = 1;
  std::int64_t cores = 1;                      ///< devices of each host
  CudaDevices cuda;                            ///< for sections that name theirs; others are placed on cores only
  std::vector<std::uint32_t> hosts;            ///< by process: its host, counted from 0; empty: all on the same
  std::vector<std::vector<DeviceId>> devices;  ///< per section: replica by replica, by rank; empty: automatic; one
                                               ///< emulated without a number: a device for each rank
  std::vector<std::vector<std::int64_t>> processes_of;  ///< per section: by replica; empty: in turn; may be shorter
};

/// The devices that a section needs.
struct Degrees {
  std::int64_t replicas = 1;
  std::int64_t pipeline = 1;
  Layout layout;
  [[nodiscard]] std::int64_t devices() const { return replicas * pipeline * layout.ranks(); }
};
/// Returns the largest layout below `wanted` that fits so many devices. Tensor and context degrees become divisors of
/// the wanted degrees: a model that can be sharded by 8 can be sharded by 4, but perhaps not by 7.
[[nodiscard]] Degrees nearest_fit(const Degrees& wanted, std::int64_t devices);
/// "replicas x pipeline x context x tensor = 2 x 1 x 1 x 4"
[[nodiscard]] std::string text_of(const Degrees& degrees);

/// Returns all replicas in order of section and replica. Throws JobError: a device that is neither core, GPU nor
/// emulated, a missing core or CUDA device, two ranks of a section on the same device, more ranks than devices, a
/// missing process, one whose host has no device left for a replica that names it, or an emulated device in two
/// processes.
std::vector<ReplicaPlacement> place(const SectionGraph& graph, const PlacementRequest& request);

}  // namespace maestro
