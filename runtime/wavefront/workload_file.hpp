// SPDX-License-Identifier: Apache-2.0
// Workload files: sections, edges and samples with times, as JSON (the format is in docs/workloads.md).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// Parses a workload. Throws JobError, a line with the file and the place in it ("samples[3].forward_ms.vison"), for
/// values that are malformed, unknown (with the nearest name), negative, missing, doubled or impossible: a cycle, zero
/// slots, zero replicas, a sample without sections, a sample that activates two sections of a path but lacks a time for
/// a section between them.
Workload parse_workload(std::string_view json, const std::string& file_name);
Workload load_workload(const std::filesystem::path& path);

/// Returns an event for each pass: {"sample", "section", "replica", "pass": "forward"|"backward", "start_ms",
/// "end_ms"}. A JSON list.
std::string timeline_json(const Workload& workload, const Schedule& schedule);

}  // namespace maestro
