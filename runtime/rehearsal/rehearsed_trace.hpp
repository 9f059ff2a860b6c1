// SPDX-License-Identifier: Apache-2.0
// The timeline of a rehearsal as a trace file, with the tracks and names of a run's trace.
#pragma once

#include <filesystem>

#include "runtime/core/result.hpp"
#include "runtime/rehearsal/rehearsal.hpp"

namespace maestro {

/// Writes the trace for Perfetto. Errors name the file.
[[nodiscard]] Status write_rehearsed_trace(const Rehearsed& rehearsed, const SectionGraph& graph,
                                           const std::filesystem::path& out);

}  // namespace maestro
