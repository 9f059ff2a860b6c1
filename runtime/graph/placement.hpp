// SPDX-License-Identifier: Apache-2.0
// Assignment of section replicas to processes and devices. Pure.
//
// PL-1 (distinct devices): all ranks of a section are on distinct devices, except for PL-4 and PL-5.
// PL-2 (sources on rank 0): rank 0 always hosts sources; with enough processes it hosts nothing else, except a section
//       that names its processes.
// PL-3 (one host per replica): a replica's ranks are on devices of a single host, the host of its process.
// PL-4 (shared placements): a section's first `least` replicas are placed like any other section's; each further
//       replica shares process and devices with one of them, in turn.
// PL-5 (numbered emulated devices): replicas of any sections may share one, ranks of one replica may not. It is in a
//       single process: a replica that names no process is in its devices' process.
// PL-6 (another section's devices): a section may be on all devices of another section, in their order (replica, stage,
//       rank) and in their processes.
// PL-7 (chunks): a stage of a section may be on the devices and in the processes of an earlier stage.
#pragma once

#include <map>
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
  std::vector<DeviceId> devices;  ///< devices by rank; a source's is the host
  std::uint32_t host = 0;         ///< host of the process: devices of two hosts may be equal
  bool shares = false;            ///< process and devices are also an earlier replica's (PL-4)
};

/// Returns the place of a replica, or null.
[[nodiscard]] const ReplicaPlacement* find_place(const std::vector<ReplicaPlacement>& places, SectionId section,
                                                 ReplicaIndex replica);
/// Returns whether some rank of the section runs on a GPU.
[[nodiscard]] bool touches_cuda(const std::vector<ReplicaPlacement>& places, SectionId section);

/// GPUs that a job may name.
struct CudaDevices {
  std::int64_t of_host = 0;                                ///< GPUs of each host
  std::string missing = "this build has no CUDA backend";  ///< reason why there are none
};

struct PlacementRequest {
  std::int64_t processes = 1;
  std::int64_t cores = 1;                      ///< devices of each host
  CudaDevices cuda;                            ///< for sections that name theirs; others are placed on cores only
  std::vector<std::uint32_t> hosts;            ///< host of each process, counted from 0; empty: all on the same
  std::vector<std::vector<DeviceId>> devices;  ///< per section: replica by replica, by rank; empty: automatic; one
                                               ///< emulated without a number: a device for each rank
  std::vector<std::vector<std::int64_t>> processes_of;  ///< per section: by replica; empty: in turn; may be shorter
  std::vector<std::string> devices_of;  ///< per section: the section whose devices it uses; empty: none; may be shorter
  std::map<SectionId, SectionId> chunk_of;  ///< stages on the devices of an earlier stage
};

/// Devices that a section needs.
struct Degrees {
  std::int64_t replicas = 1;
  std::int64_t pipeline = 1;
  Layout layout;
  [[nodiscard]] std::int64_t devices() const { return replicas * pipeline * layout.ranks(); }
};
/// Returns the largest layout below `wanted` that fits so many devices. Tensor and context degrees become divisors of
/// the wanted degrees: a model that can be sharded by 8 can be sharded by 4, but perhaps not by 7.
[[nodiscard]] Degrees nearest_fit(const Degrees& wanted, std::int64_t devices);
/// Returns "replicas x pipeline x context x tensor = 2 x 1 x 1 x 4".
[[nodiscard]] std::string text_of(const Degrees& degrees);

/// Returns all replicas in order of section and replica. Throws JobError for: a device that is neither core, GPU nor
/// emulated, a missing core or CUDA device, two ranks of a section on the same device, more ranks than devices, a
/// missing process, a named process whose host lacks a device for the replica, an emulated device in two processes, or
/// a replica that would be in two processes on another section's devices.
std::vector<ReplicaPlacement> place(const SectionGraph& graph, const PlacementRequest& request);

}  // namespace maestro
