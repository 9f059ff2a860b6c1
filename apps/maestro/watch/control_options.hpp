// SPDX-License-Identifier: Apache-2.0
// The options and errors that commands on a run's control service share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "apps/maestro/watch/known_runs.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Adds the argument and the options that choose a run. `choice` outlives `command`.
void add_run_choice(CLI::App& command, RunChoice& choice);

/// Calls a run. Returns the exit status: 1, after a line, if no run answers or the run refuses. Throws JobError for an
/// invalid address.
int call_run(Console& console, const std::function<void()>& call);

}  // namespace maestro
