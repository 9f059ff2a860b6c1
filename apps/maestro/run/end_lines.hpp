// SPDX-License-Identifier: Apache-2.0
// The lines that end a run: its figures, and the paths of its files.
#pragma once

#include <map>
#include <string>

#include "actors/run/record/run_result.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Prints the folders of exported models by section, each with the line of Python that loads it.
void print_models(const std::map<std::string, std::string>& folders, Console& console);

/// Prints a run's steps, times, speed, losses, last validation, memory and files, and how to continue a run that was
/// interrupted; leaves out missing values. In JSON it is one object. Prints nothing for a process other than rank 0.
void print_summary(const RunResult& result, Console& console);

}  // namespace maestro
