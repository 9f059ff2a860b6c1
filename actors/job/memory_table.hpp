// SPDX-License-Identifier: Apache-2.0
// Estimates a plan's memory by rank, by process, and by device with its own memory. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/job/memory_estimate.hpp"
#include "actors/job/resolved_job.hpp"

namespace maestro {

/// A rank's memory.
struct RankMemory {
  SectionId section;
  ReplicaIndex replica;
  LayoutRank rank;
  MemoryDemand demand;
  MemoryUse use;
};

struct MemoryEstimate {
  std::vector<RankMemory> ranks;  ///< in order of section, replica and rank; emulated sections have none
  std::vector<double> processes;  ///< bytes of host memory by process: program, corpus, CUDA and ranks
  using DeviceOfHost = std::pair<std::uint32_t, DeviceId>;
  std::map<DeviceOfHost, double> devices;  ///< bytes of device memory
};

/// Returns the estimate of a placed plan.
[[nodiscard]] MemoryEstimate estimate_memory(const ResolvedJob& plan);
/// Returns the host memory of all processes in bytes.
[[nodiscard]] double host_bytes(const MemoryEstimate& estimate);

/// Returns lines for `check`: equal ranks together, then processes and devices.
[[nodiscard]] std::vector<std::string> describe_memory(const ResolvedJob& plan);
/// Returns the sums in a few words, for the header of a run: "about 1.2 GB".
[[nodiscard]] std::string memory_in_short(const ResolvedJob& plan);

}  // namespace maestro
