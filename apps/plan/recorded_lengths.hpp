// SPDX-License-Identifier: Apache-2.0
// Lengths of made samples in the record of a run.
#pragma once

#include <filesystem>

#include "runtime/core/result.hpp"
#include "runtime/rehearsal/completion_lengths.hpp"

namespace maestro {

/// Returns the lengths of the samples in the last 32 steps of a run, from its record: the means of the steps' figures
/// and the longest sample. `run`: the run's folder. Errors name what the record lacks.
[[nodiscard]] Result<CompletionLengths> recorded_lengths(const std::filesystem::path& run);

}  // namespace maestro
