// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace maestro {

/// Returns the text of a job file with settings, as for --set, written into it: comments and order stay where the keys
/// stand on lines of their own; else the text is that of the job's values alone. `header`: lines of a comment before
/// it, without "# ". Throws JobError for text that is no job.
[[nodiscard]] std::string job_text_with(const std::string& text, const std::vector<std::string>& settings,
                                        const std::vector<std::string>& header);

}  // namespace maestro
