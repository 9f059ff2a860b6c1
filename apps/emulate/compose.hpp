// SPDX-License-Identifier: Apache-2.0
// A workload file as a job on emulated devices: every section a replica actor that waits for the time given in the
// file.
#pragma once

#include <memory>
#include <string>

#include "actors/process/app.hpp"
#include "apps/emulate/workload_corpus.hpp"

namespace maestro {

struct EmulationSettings {
  std::string policy = "wavefront";
  std::int64_t steps = 10;
  std::int64_t columns = 64;  ///< floats that a sample sends over an edge
  std::int64_t evaluations = 64;
};

/// The job file of the run, TOML.
std::string emulation_job(const WorkloadCorpus& corpus, const EmulationSettings& settings);
/// Source, sections and edges of the workload.
void compose_emulation(App& app, const std::shared_ptr<const WorkloadCorpus>& corpus, std::int64_t columns);

}  // namespace maestro
