// SPDX-License-Identifier: Apache-2.0
// Lines that a command prints behind a run: figures of the validation, and where the models are.
#pragma once

#include <map>
#include <string>

#include "actors/run/run_result.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Returns peak memory beside its estimate: "508 MB, estimated 480 MB".
[[nodiscard]] std::string memory_text(double used_mb, double estimated_mb);

/// Prints the folders of exported models by section, each with the line of Python that loads it.
void print_models(const std::map<std::string, std::string>& folders, Console& console);

/// Prints the models of a run, or without any the folders of the weights in its checkpoint.
void print_weights(const RunResult& result, Console& console);

/// Prints the last validation, the models and the checkpoint; nothing that there is not.
void print_end(const RunResult& result, Console& console);

}  // namespace maestro
