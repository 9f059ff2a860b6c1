// SPDX-License-Identifier: Apache-2.0
// Seeded workloads of all kinds of compound training, for the benchmark and for random tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// The section graphs that workloads can have.
enum class WorkloadKind {
  vision_language,  ///< vision -> llm
  distillation,     ///< frozen teacher -> 1 to 3 students
  audio_vision,     ///< vision and audio -> llm
  generation,       ///< vision -> llm -> generator
};
[[nodiscard]] std::vector<WorkloadKind> workload_kinds();
[[nodiscard]] std::string_view name_of(WorkloadKind kind);

struct GeneratedWorkload {
  std::string name;  ///< kind, seed and the sizes that were drawn
  Workload workload;
};

enum class WorkloadLayout {
  /// A planner's choice: auxiliary lanes have 0.3 to 0.8 of the critical section's work per lane; in-flight
  /// limits are at least 1.5 times the average number that downstream sections need (Little's law), and at most 8.
  sized,
  /// Independent draws: 0.3 to 1 of the work, any limits. Often several limits bind at once.
  tight,
  /// 4 encoder lanes before 8 LLM lanes, or 4 to 16 teacher lanes before 4 to 16 student lanes; 0.5 to 1 of the work;
  /// lognormal (sigma 1 to 1.5) or Pareto (alpha 1 to 1.5) lengths; in-flight limits 1-3. The longest samples dominate.
  heavy,
};
[[nodiscard]] std::string_view name_of(WorkloadLayout layout);

/// Draws 64 to 1,024 samples, 10-90% of them with 1 to 8 images; slots 1-4, transfers 0-0.5 ms, and trained or frozen
/// encoders. Unless the layout sets other ranges, it draws 1-8 encoder (teacher, generator) and 1-32 LLM (student)
/// lanes, lognormal or Pareto lengths, and in-flight limits 1-8. Times are multiples of a microsecond. The same seed
/// returns the same workload.
[[nodiscard]] GeneratedWorkload generate_workload(WorkloadKind kind, std::uint64_t seed,
                                                  WorkloadLayout layout = WorkloadLayout::sized);

/// Draws a workload for exhaustive search: 1 to `samples` samples, 1 or 2 lanes a section, times of a few ms, limits of
/// every kind or none, sometimes the same device for two sections. A distillation has at most two students.
[[nodiscard]] GeneratedWorkload generate_tiny_workload(WorkloadKind kind, std::uint64_t seed, std::int64_t samples);

}  // namespace maestro
