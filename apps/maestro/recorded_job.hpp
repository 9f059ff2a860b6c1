// SPDX-License-Identifier: Apache-2.0
// The job of a run, out of its record.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "actors/process/app.hpp"
#include "actors/run/run_journal.hpp"

namespace maestro {

/// Composes the app of a job that a run has kept; `where` names it in errors. `overrides` as for --set. Where the
/// options have no number of CPU devices, there are enough for any job. Throws JobError.
[[nodiscard]] App job_app(const std::string& job, const std::string& where, RunOptions options,
                          const std::vector<std::string>& overrides, Console& console);

/// Composes the app of a start with the start's job. Otherwise as job_app().
[[nodiscard]] App recorded_app(const std::filesystem::path& record, const RunStart& start, RunOptions options,
                               const std::vector<std::string>& overrides, Console& console);

/// Returns which of the data that a start was made with are others in `now`: "content differs"; empty: none. Data that
/// one of both lacks are not compared.
[[nodiscard]] std::string changed_data(const RunStart& start, const std::map<std::string, std::string>& now);

}  // namespace maestro
