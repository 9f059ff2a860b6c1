// SPDX-License-Identifier: Apache-2.0
// A student's table in a job file, with the tables of its teachers.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/job_table.hpp"
#include "sections/distill/distilled_decoder.hpp"

namespace maestro {

/// Returns the names at `teacher` of a student's table, one or several. Throws JobError for an empty list, and for a
/// name that is there twice.
[[nodiscard]] std::vector<std::string> read_teacher_names(const JobTable& student);

/// Returns whether the job has this teacher on file.
[[nodiscard]] bool is_recorded(const JobTable& teacher);

/// Returns the boundary of a teacher's output: of an only teacher that of its student's table, of several that of its
/// own, and of a teacher on file top_k_rest.
[[nodiscard]] TeacherOutput read_teacher_boundary(const JobTable& student, const JobTable& teacher);

/// Reads the student and, in the job's `root`, its teachers. Throws JobError.
[[nodiscard]] DistilledDecoder::Options read_student(const JobTable& student, const JobTable& root,
                                                     const DataShape& data);

}  // namespace maestro
