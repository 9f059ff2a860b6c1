// SPDX-License-Identifier: Apache-2.0
// Runs a workload file as a job on emulated devices: every section's replica actors wait for the times in the file.
#pragma once

#include <memory>
#include <string>

#include "actors/process/app.hpp"
#include "apps/emulate/workload_corpus.hpp"

namespace maestro {

struct EmulationSettings {
  std::string policy = "wavefront";
  std::int64_t steps = 10;
  std::int64_t columns = 64;     ///< floats that a sample sends over an edge
  std::int64_t evaluations = 0;  ///< schedules tried; 0: by the workload's size
};

/// Returns the run's job file in TOML.
std::string emulation_job(const WorkloadCorpus& corpus, const EmulationSettings& settings);
/// Returns a line for a workload whose edges have unequal slots, as a job has one number for all; empty: they are
/// equal.
std::string note_on_slots(const WorkloadCorpus& corpus);
/// Composes the workload's source, sections and edges, for a job that emulation_job() has made. Without `corpus`, as
/// for the job in a trace, reads the workload file that the job names; throws JobError if it cannot be read.
void compose_emulation(App& app, std::shared_ptr<const WorkloadCorpus> corpus = nullptr);

}  // namespace maestro
