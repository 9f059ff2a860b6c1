// SPDX-License-Identifier: Apache-2.0
// Estimates the memory that a section needs on a device, as far as it is computable before the run, to refuse a
// micro-batch that cannot fit. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/core/dtype.hpp"

namespace maestro {

/// Demand of a rank.
struct MemoryDemand {
  std::int64_t parameters = 0;     ///< elements held by the rank
  std::int64_t weights_below = 0;  ///< elements of frozen weights below adapters
  std::int64_t moment_shards = 1;  ///< replicas that shard the optimizer state (zero)
  bool trained = false;
  bool keeps_activations = false;  ///< trained, or gradients pass through
  DType precision = DType::f32;
  double sample_bytes = 0;       ///< activations of the largest sample, kept for the backward pass
  std::int64_t micro_batch = 1;  ///< samples, all of the largest size
  std::int64_t in_flight = 1;    ///< micro-batches whose activations are kept at once
};

/// Bytes: of frozen weights below adapters the packed forms of both passes; values, gradients and two moments in f32,
/// packed weights of both passes in `precision`, activations of the micro-batches in flight. Buffers of edges and
/// scratch come on top.
[[nodiscard]] double parameter_bytes(const MemoryDemand& demand);
[[nodiscard]] double activation_bytes(const MemoryDemand& demand);

/// Throws JobError when `demand` is above `memory_mib` (0: no limit), with the largest micro-batch that fits, or, if
/// the parameters alone are too large, the other settings to change. `section`: its name in the job.
void check_memory(const std::string& section, const MemoryDemand& demand, std::int64_t memory_mib);

}  // namespace maestro
