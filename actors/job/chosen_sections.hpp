// SPDX-License-Identifier: Apache-2.0
// Chooses the sections that run for a source's samples: a mixture's `teachers`. Pure.
#pragma once

#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// Sets the sources of every teacher, a section whose output goes to a chosen input (Port::chosen): the sources that
/// name it, and the sources without a list of teachers. `root` is the job's top level. Throws JobError for a name that
/// is not a teacher, for a source that leaves a section without any of its teachers, and for a teacher without a
/// source.
void choose_sections(SectionGraph& graph, const std::vector<SourceTeachers>& sources, const JobTable& root);

}  // namespace maestro
