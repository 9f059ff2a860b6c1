// SPDX-License-Identifier: Apache-2.0
// Estimates the memory of a rank, as far as it is computable before the run: what `check` prints, what a micro-batch is
// refused by, and what the report compares with the memory that was used. Pure.
//
// ME-1 (touched memory): memory that a run reserves and never touches counts nothing, as rings that no other process
//       writes into; everything that stays touched counts at its largest. Pinned memory and that of devices is there in
//       full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/dtype.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Elements that a rank of a section holds.
struct HeldElements {
  std::int64_t all = 0;
  std::int64_t matrices = 0;  ///< of products
  std::int64_t table = 0;     ///< of an embedding
  bool tied = false;          ///< the table is one of the matrices
  std::int64_t largest = 0;   ///< of a single parameter
  double extra_bytes = 0;     ///< Section::extra_bytes
};
/// Returns those of parameters(); below adapters there are more.
[[nodiscard]] HeldElements held_elements(Section& section);
/// Returns those of the frozen weights below adapters; nothing without adapters.
[[nodiscard]] HeldElements held_below_adapters(Section& section);

/// Demand of a rank.
struct MemoryDemand {
  HeldElements held;
  HeldElements below = {};         ///< of frozen weights below adapters
  std::int64_t moment_shards = 1;  ///< replicas that shard the optimizer state (zero)
  bool trained = false;
  bool keeps_activations = false;  ///< trained, or gradients pass through
  bool from_file = false;          ///< values are those of stored weights, which bf16 mostly holds
  bool shared = false;             ///< an earlier replica of the process has the frozen values
  bool on_cuda = false;
  DType precision = DType::f32;
  DType moments = DType::f32;  ///< of the optimizer state
  double sample_bytes = 0;     ///< activations of the largest sample, kept for the backward pass
  double working_bytes = 0;    ///< beside them for a while, of the largest sample
  std::optional<double> pass_bytes =
      {};                        ///< of a micro-batch, where a dry pass measured them; the two above do not count
  std::int64_t micro_batch = 1;  ///< samples, all of the largest size
  std::int64_t in_flight = 1;    ///< micro-batches whose activations are kept at once
  double edge_bytes = 0;         ///< slots and send buffers in host memory
  double device_edge_bytes = 0;  ///< likewise, and gathered rows, in memory of the device
  double exchange_bytes = 0;     ///< of gradients that other replicas write
  double checkpoint_bytes = 0;   ///< copies of the state while a checkpoint is written
};

/// Bytes of a rank by use.
struct MemoryUse {
  double parameters = 0;  ///< values in f32 and packed
  double gradients = 0;   ///< with those that other replicas write
  double optimizer = 0;
  double activations = 0;   ///< with working memory of passes
  double edges = 0;         ///< in host memory
  double device_edges = 0;  ///< in memory of the device
  double checkpoint = 0;
  /// Returns the bytes in the memory of a device that has its own; the rest is in that of the process.
  [[nodiscard]] double on_device() const { return parameters + gradients + optimizer + activations + device_edges; }
  [[nodiscard]] double sum() const { return on_device() + edges + checkpoint; }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};
[[nodiscard]] MemoryUse use_of(const MemoryDemand& demand);

/// Throws JobError when `demand` is above `memory_mib` (0: no limit), with the largest micro-batch that fits, or, if
/// the parameters alone are too large, the other settings to change. `section`: its name in the job.
void check_memory(const std::string& section, const MemoryDemand& demand, std::int64_t memory_mib);

/// Returns "12 MiB", rounded up.
[[nodiscard]] std::string in_mib(double bytes);
/// Returns "12 MB" or "3.4 GB", of 10^6 or 10^9 bytes.
[[nodiscard]] std::string text_of_bytes(double bytes);

}  // namespace maestro
