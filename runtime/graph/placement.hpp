// SPDX-License-Identifier: Apache-2.0
// Which process and which device runs each section replica. Pure.
//
// PL-1: the ranks of all replicas of one section are on distinct devices.
// PL-2: rank 0 always hosts sources; with enough processes it hosts nothing else.
// PL-3: the ranks of a replica are on the devices of one host, that of its process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct ReplicaPlacement {
  SectionId section;
  ReplicaIndex replica;
  ProcessId rank;
  std::vector<std::string> devices;  ///< by rank: "cpu:K", "cuda:K", "emulated:section/replica" or, of a source, "host"
  std::uint32_t host = 0;            ///< of the process: devices of two hosts may have one name
};

/// A GPU of a process, "cuda:K".
[[nodiscard]] inline bool is_cuda_device(std::string_view device) {
  return device.starts_with("cuda:");
}

/// Null when there is none.
[[nodiscard]] const ReplicaPlacement* find_place(const std::vector<ReplicaPlacement>& places, SectionId section,
                                                 ReplicaIndex replica);
/// Some rank of the section works on a GPU.
[[nodiscard]] bool touches_cuda(const std::vector<ReplicaPlacement>& places, SectionId section);

/// What "cuda:K" may name in a job.
struct CudaDevices {
  std::int64_t of_host = 0;                                ///< on each host
  std::string missing = "this build has no CUDA backend";  ///< why there are none
};

struct PlacementRequest {
  std::int64_t processes = 1;
  std::int64_t cores = 1;            ///< devices of each host
  CudaDevices cuda;                  ///< for sections that name theirs; places are chosen among cores only
  std::vector<std::uint32_t> hosts;  ///< by process: its host, counted from 0; empty: all on one
  std::vector<std::vector<std::string>>
      devices;  ///< per section: replica by replica, by rank; empty: automatic; {"emulated"}: one for each replica
};

/// What a section asks of the devices.
struct Degrees {
  std::int64_t replicas = 1;
  std::int64_t pipeline = 1;
  Layout layout;
  [[nodiscard]] std::int64_t devices() const { return replicas * pipeline * layout.ranks(); }
};
/// The most of `wanted` that so many devices hold. Tensor and context degrees become divisors of those wanted: what
/// cuts a model in 8 cuts it in 4, but perhaps not in 7.
[[nodiscard]] Degrees nearest_fit(const Degrees& wanted, std::int64_t devices);
/// "replicas x pipeline x context x tensor = 2 x 1 x 1 x 4"
[[nodiscard]] std::string text_of(const Degrees& degrees);

/// All replicas in order of section and replica. Throws JobError: an unknown device name, a core or a CUDA
/// device that is not there, two ranks of one section on one device, more of them than devices.
std::vector<ReplicaPlacement> place(const SectionGraph& graph, const PlacementRequest& request);

}  // namespace maestro
