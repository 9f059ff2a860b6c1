// SPDX-License-Identifier: Apache-2.0
// Resolves a composed app into the plan of a job: reads the job file's tables, builds a meta section of each section
// for its ports and costs, checks the whole and places it on devices.
#pragma once

#include "actors/job/resolved_job.hpp"
#include "actors/process/app.hpp"

namespace maestro {

/// Throws JobError for invalid input. Reads every key that the app's sections define; a key that nobody reads is an
/// error.
[[nodiscard]] ResolvedJob resolve_job(Composition& composed);
/// Returns the number of CPU devices of a host.
[[nodiscard]] std::int64_t cpu_devices_of(const RunOptions& run);
/// Throws JobError where a run with --pause-after would not pause, or not go on.
void check_pause(const ResolvedJob& plan);
/// The job's [transport] with the options of the command line over it.
[[nodiscard]] TransportConfig resolve_transport(const Composition& composed);

}  // namespace maestro
