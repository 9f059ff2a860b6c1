// SPDX-License-Identifier: Apache-2.0
// Options of the command line that several sub-commands share.
#pragma once

#include <CLI/CLI.hpp>

#include "actors/plan/job_plan.hpp"

namespace maestro {

/// Adds the options of a run: processes, hosts, devices, output files, control service. `run` outlives `command`.
void add_run_options(CLI::App& command, RunOptions& run);
/// Adds the options of a run's start: a resumed or a fresh run. `run` outlives `command`.
void add_start_options(CLI::App& command, RunOptions& run);

}  // namespace maestro
