// SPDX-License-Identifier: Apache-2.0
// The job of a run, out of its record.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "actors/process/app.hpp"
#include "actors/run/record/run_journal.hpp"
#include "apps/maestro/run/plug_in_option.hpp"

namespace maestro {

/// Parses a job's text, such as the copy in a run's record, and adds the plug-ins of the command line (PQ-1). `where`
/// names the text in errors; `overrides` are as for --set. Throws JobError.
[[nodiscard]] JobDocument job_document(const std::string& job, const std::string& where,
                                       const std::vector<std::string>& overrides, const PlugInChoice& plug_ins);

/// Composes the app of such a job. If the options lack a number of CPU devices, there are enough for any job. Throws
/// JobError.
[[nodiscard]] App job_app(JobDocument document, RunOptions options, Console& console);

/// Returns the job of a start, as job_document().
[[nodiscard]] JobDocument recorded_document(const std::filesystem::path& record, const RunStart& start,
                                            const std::vector<std::string>& overrides, const PlugInChoice& plug_ins);

/// Returns how the data that a start was made with differ from `now`: "content differs"; empty: not at all. Data that
/// either lacks are not compared.
[[nodiscard]] std::string changed_data(const RunStart& start, const std::map<std::string, std::string>& now);

}  // namespace maestro
