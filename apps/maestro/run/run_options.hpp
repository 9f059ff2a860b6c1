// SPDX-License-Identifier: Apache-2.0
// Options of the command line that several sub-commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Adds the options of a run: processes, hosts, devices, output files, control service. `run` outlives `command`.
void add_run_options(CLI::App& command, RunOptions& run);
/// Adds --log-format.
void add_log_format(CLI::App& command, std::string& format);
/// Returns whether these arguments of the program request JSON lines. CLI11 has not parsed them yet, since errors in
/// them are printed in this format too.
[[nodiscard]] bool requests_json_lines(std::span<const std::string> arguments);
/// Returns the arguments that make another process of the run print lines in the same format.
[[nodiscard]] std::vector<std::string> log_arguments(const std::string& format);
/// Adds the options of a run's start: a resumed or a fresh run. `run` outlives `command`.
void add_start_options(CLI::App& command, RunOptions& run);

}  // namespace maestro
