// SPDX-License-Identifier: Apache-2.0
// A student's table in a job file, with the tables of its teachers.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/job_table.hpp"
#include "sections/distill/distilled_decoder.hpp"

namespace maestro {

/// Returns the names at `teacher` of a student's table, one or several. Throws JobError for an empty list, and for a
/// repeated name.
[[nodiscard]] std::vector<std::string> read_teacher_names(const JobTable& student);

/// Returns whether this teacher of the job is recorded.
[[nodiscard]] bool is_recorded(const JobTable& teacher);

/// Returns the teacher's boundary: the key in the student's table with one teacher, the key in the teacher's table with
/// several, and top_k_rest for a recorded teacher.
[[nodiscard]] TeacherOutput read_teacher_boundary(const JobTable& student, const JobTable& teacher);

/// Reads the student and, in the job's `root`, its teachers and `generator`, the section that makes samples; empty:
/// there is none. Throws JobError.
[[nodiscard]] DistilledDecoder::Options read_student(const JobTable& student, const JobTable& root,
                                                     const DataShape& data, const std::string& generator = "");

}  // namespace maestro
