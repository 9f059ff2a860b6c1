// SPDX-License-Identifier: Apache-2.0
// Which sections run for the samples of a source: a mixture's `teachers`. Pure.
#pragma once

#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// Sets the sources of every section whose output goes to a chosen input (Port::chosen): those that name it, and those
/// that name no teacher. `mix` is the table of the sources. Throws JobError for a name that is no such section, and for
/// a source that leaves a section without any of its teachers.
void choose_sections(SectionGraph& graph, const std::vector<SourceTeachers>& sources, const JobTable& mix);

}  // namespace maestro
