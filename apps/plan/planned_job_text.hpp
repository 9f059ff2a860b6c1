// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "runtime/job/plan_reader.hpp"

namespace maestro {

/// Returns the text of a job file with settings, as for --set, written into it: comments and order stay where the keys
/// stand on lines of their own; else the text is that of the job's values alone. `header`: lines of a comment before
/// it, without "# ". Throws JobError for text that is no job.
[[nodiscard]] std::string job_text_with(const std::string& text, const std::vector<std::string>& settings,
                                        const std::vector<std::string>& header);

/// Returns the text without its table [plan]. Throws JobError for text that is no job.
[[nodiscard]] std::string job_text_without_plan(const std::string& text);

/// Returns [plan] as for --set.
[[nodiscard]] std::vector<std::string> settings_of(const PlanConfig& plan);

}  // namespace maestro
