// SPDX-License-Identifier: Apache-2.0
// Seeded workloads of the kinds that compound training has, for the benchmark and for random tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// The shapes of section graph that are drawn from.
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
  /// Laid out as in a job: auxiliary lanes have 0.3 to 0.8 of the critical section's work per lane; in-flight limits
  /// are at least 1.5 times the average number in flight that the sections behind need (Little's law), 8 at most.
  sized,
  /// Anything goes: 0.3 to 1 of the work, any limits. Often several limits bind at once.
  tight,
  /// 4 encoder lanes before 8 LLM lanes, or 4 to 16 teacher lanes before 4 to 16 student lanes; 0.5 to 1 of the work;
  /// lognormal (sigma 1 to 1.5) or Pareto (alpha 1 to 1.5) lengths; in-flight limits 1-3. The longest samples decide.
  heavy,
};
[[nodiscard]] std::string_view name_of(WorkloadLayout layout);

/// 64 to 1,024 samples; 10-90% of samples with pictures, 1 to 8 of them; slots 1-4, transfers 0-0.5 ms; encoders
/// trained or frozen; unless the layout has its own, 1-8 encoder (teacher, generator) and 1-32 LLM (student) lanes,
/// lognormal or Pareto lengths, in-flight limits 1-8. Times are whole microseconds. The same seed gives the same
/// workload.
[[nodiscard]] GeneratedWorkload generate_workload(WorkloadKind kind, std::uint64_t seed,
                                                  WorkloadLayout layout = WorkloadLayout::sized);

/// For exhaustive search: 1 to `samples` samples, 1 or 2 lanes a section, small whole milliseconds, limits of every
/// kind or none, sometimes the same device for two sections. The distillation has at most two students.
[[nodiscard]] GeneratedWorkload generate_tiny_workload(WorkloadKind kind, std::uint64_t seed, std::int64_t samples);

}  // namespace maestro
