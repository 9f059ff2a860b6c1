// SPDX-License-Identifier: Apache-2.0
// A schedule as an image: Chrome trace JSON, which https://ui.perfetto.dev opens.
#pragma once

#include <string>

#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// Returns the trace. Sections are processes and replicas are threads, in workload order; a slice per pass, named by
/// pass and sample; times in the trace are microseconds.
[[nodiscard]] std::string timeline_trace_json(const Workload& workload, const Schedule& schedule);

}  // namespace maestro
