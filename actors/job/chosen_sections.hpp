// SPDX-License-Identifier: Apache-2.0
// Which sections run for the samples of a source: a mixture's `teachers`. Pure.
#pragma once

#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// Sets the sources of every section whose output goes to a chosen input (Port::chosen): the sources that name it, and
/// the sources without a list of teachers. `root` is the job's top level. Throws JobError for a name that is not such a
/// section, for a source that leaves a section without any of its teachers, and for a teacher without a source.
void choose_sections(SectionGraph& graph, const std::vector<SourceTeachers>& sources, const JobTable& root);

}  // namespace maestro
