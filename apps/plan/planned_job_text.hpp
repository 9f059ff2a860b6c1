// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "runtime/job/plan_reader.hpp"

namespace maestro {

/// Returns the text of a job file after writing settings, as for --set, into it. Comments and order are kept if each
/// key has a line to itself; else the text has only the job's values. `header`: comment lines before it, without "# ".
/// Throws JobError for text that is not a job.
[[nodiscard]] std::string job_text_with(const std::string& text, const std::vector<std::string>& settings,
                                        const std::vector<std::string>& header);

/// Returns the text without its table [plan]. Throws JobError for text that is not a job.
[[nodiscard]] std::string job_text_without_plan(const std::string& text);

/// Returns the table [plan] as settings, as for --set.
[[nodiscard]] std::vector<std::string> settings_of(const PlanConfig& plan);

}  // namespace maestro
