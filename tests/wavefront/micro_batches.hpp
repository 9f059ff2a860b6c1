// SPDX-License-Identifier: Apache-2.0
// Random steps of micro-batches: sections pack samples differently, so that a task reads several outputs and several
// tasks read an output. Some tasks take no time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "runtime/core/random.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// Returns vision -> llm, with different micro-batch sizes over up to 32 samples; sometimes also audio. Limits are
/// large enough for a single path at a time.
inline Workload micro_batch_workload(std::uint64_t seed) {
  Random random(seed, 7);
  const auto draw = [&](std::uint64_t low, std::uint64_t high) {
    return static_cast<std::int64_t>(low + random.below(high - low + 1));
  };
  Workload workload;
  const std::int64_t encoders = draw(1, 2);
  const std::int64_t samples = draw(1, 32);
  const auto llm = static_cast<std::size_t>(encoders);
  std::map<std::pair<std::size_t, std::int64_t>, std::size_t> encoded;  // (section, sample) -> task
  for (std::size_t section = 0; section < llm; ++section) {
    workload.sections.push_back({section == 0 ? "vision" : "audio", draw(0, 3) > 0, draw(1, 3), no_limit, {}});
    workload.edges.push_back({section, llm, no_limit, 0.25 * static_cast<double>(draw(0, 2))});
    const std::int64_t size = draw(1, 4);
    std::int64_t in_batch = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      if (random.uniform() < 0.3) continue;
      if (in_batch == 0) {
        const bool trained = workload.sections[section].has_backward;
        const double forward_ms = static_cast<double>(draw(0, 6));
        workload.tasks.push_back(
            {section, static_cast<std::int64_t>(workload.tasks.size()), forward_ms, trained ? 2 * forward_ms : 0, {}});
      }
      encoded[{section, sample}] = workload.tasks.size() - 1;
      in_batch = (in_batch + 1) % size;
    }
  }
  workload.sections.push_back({"llm", true, draw(1, 4), draw(0, 2), {}});
  const std::int64_t size = draw(1, 4);
  for (std::int64_t first = 0; first < samples; first += size) {
    WorkloadTask task{llm, first / size, static_cast<double>(draw(0, 9)), static_cast<double>(draw(0, 18)), {}};
    std::map<std::size_t, std::size_t> inputs;  // edge by task, each task once
    for (std::int64_t sample = first; sample < std::min(first + size, samples); ++sample) {
      for (std::size_t section = 0; section < llm; ++section) {
        if (const auto found = encoded.find({section, sample}); found != encoded.end()) inputs[found->second] = section;
      }
    }
    for (const auto& [producer, edge] : inputs) task.inputs.push_back({edge, producer});
    workload.tasks.push_back(std::move(task));
  }
  // At most four tasks read an output, and a task reads at most four outputs of a section. Each may wait for the next
  // task: nine slots let every path through, and so do four tasks in flight.
  for (WorkloadEdge& edge : workload.edges) edge.slots = draw(0, 1) == 0 ? no_limit : draw(9, 12);
  for (std::size_t section = 0; section < llm; ++section) {
    workload.sections[section].max_in_flight = draw(0, 1) == 0 ? no_limit : draw(5, 8);
  }
  return workload;
}

}  // namespace maestro
