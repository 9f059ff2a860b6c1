// SPDX-License-Identifier: Apache-2.0
// Resolves a composed app into the plan of a job: reads the job file's tables, builds a meta section for the ports and
// costs of each section, checks the graph and places it on devices.
#pragma once

#include "actors/job/resolved_job.hpp"
#include "actors/process/app.hpp"

namespace maestro {

/// Returns the plan. Reads every key that the app's sections define. Throws JobError for invalid input, including keys
/// that nothing reads.
[[nodiscard]] ResolvedJob resolve_job(Composition& composed);
/// Returns the number of CPU devices per host.
[[nodiscard]] std::int64_t cpu_devices_of(const RunOptions& run);
/// Throws JobError if a run with --pause-after would not pause, or could not be resumed.
void check_pause(const ResolvedJob& plan);
/// Returns the job's [transport], overridden by options of the command line.
[[nodiscard]] TransportConfig resolve_transport(const Composition& composed);

}  // namespace maestro
