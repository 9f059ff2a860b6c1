// SPDX-License-Identifier: Apache-2.0
// Estimates a rank's memory before the run. `check` prints the estimate, a micro-batch that exceeds it is refused, and
// the report compares it with the memory that was used. Pure.
//
// ME-1 (touched memory): memory that a run reserves and never touches does not count, such as rings that no other
//       process writes into; touched memory counts at its largest. Pinned memory and device memory count in full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "runtime/ops/row_message.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Numbers of elements that a section's rank holds.
struct HeldElements {
  std::int64_t all = 0;
  std::int64_t matrices = 0;            ///< matrices in products
  std::int64_t blocks = 0;              ///< frozen matrices in MXFP4, a part of `matrices`
  std::int64_t table = 0;               ///< an embedding
  bool tied = false;                    ///< the table is one of the matrices
  std::int64_t largest = 0;             ///< the largest parameter
  double extra_bytes = 0;               ///< Section::extra_bytes, and tables that are stepped by rows
  std::vector<TableSizes> tables = {};  ///< the latter
};
/// Counts the elements of parameters(), without the frozen weights below adapters. `weights`: the folder that a frozen
/// section's values come from; empty: none.
[[nodiscard]] HeldElements held_elements(Section& section, const std::filesystem::path& weights = {});
/// Counts the elements of the frozen weights below adapters; zeros without adapters.
[[nodiscard]] HeldElements held_below_adapters(Section& section);

/// Sizes and settings that determine a rank's memory.
struct MemoryDemand {
  HeldElements held;
  HeldElements below = {};         ///< frozen weights below adapters
  std::int64_t moment_shards = 1;  ///< replicas that shard the optimizer state (zero)
  bool trained = false;
  bool keeps_activations = false;  ///< trained, or gradients pass through
  bool from_file = false;          ///< values are stored weights, which bf16 mostly holds
  bool shared = false;             ///< an earlier replica of the process holds the frozen values
  bool on_cuda = false;
  DType precision = DType::f32;
  DType moments = DType::f32;  ///< type of the optimizer state
  double sample_bytes = 0;     ///< activations of the largest sample, kept for the backward pass
  double working_bytes = 0;    ///< temporary memory for the largest sample
  std::optional<double> pass_bytes =
      {};                        ///< bytes of a micro-batch if a dry pass measured them; they replace the two above
  std::int64_t micro_batch = 1;  ///< samples, all of the largest size
  std::int64_t in_flight = 1;    ///< micro-batches whose activations are kept at once
  double edge_bytes = 0;         ///< slots and send buffers in host memory
  double device_edge_bytes = 0;  ///< slots, send buffers and gathered rows in device memory
  double exchange_bytes = 0;     ///< gradients that other replicas write
  double checkpoint_bytes = 0;   ///< copies of the state while a checkpoint is written
};

/// A rank's bytes by use.
struct MemoryUse {
  double parameters = 0;  ///< values in f32 and packed
  double gradients = 0;   ///< with gradients that other replicas write
  double optimizer = 0;
  double activations = 0;   ///< with temporary memory of passes
  double edges = 0;         ///< edges in host memory
  double device_edges = 0;  ///< edges in device memory
  double checkpoint = 0;
  /// Returns the bytes in device memory, on a device that has it; the rest is in the process' memory.
  [[nodiscard]] double on_device() const { return parameters + gradients + optimizer + activations + device_edges; }
  [[nodiscard]] double sum() const { return on_device() + edges + checkpoint; }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};
[[nodiscard]] MemoryUse use_of(const MemoryDemand& demand);

/// Throws JobError when `demand` is above `memory_mib` (0: no limit), with the largest micro-batch that fits, or, if
/// not even one sample fits, the other settings to change. `section`: its name in the job.
void check_memory(const std::string& section, const MemoryDemand& demand, std::int64_t memory_mib);

/// Returns "12 MiB", rounded up.
[[nodiscard]] std::string in_mib(double bytes);
/// Returns "12 MB" or "3.4 GB", of 10^6 or 10^9 bytes.
[[nodiscard]] std::string text_of_bytes(double bytes);

}  // namespace maestro
