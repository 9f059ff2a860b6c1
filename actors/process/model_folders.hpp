// SPDX-License-Identifier: Apache-2.0
// The model folders of a run: the files next to the weights, which rank 0 copies at the start so that their sources may
// disappear, and the exports at the end.
//
// MF-1 (a single writer): rank 0 writes the prepared files before the run begins; the writer of a section's part 0
//       copies them to checkpoints.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "actors/process/start_point.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// Returns <train.out>/.files, which holds a folder of rank 0 per trained section
/// (CheckpointStoreOptions::model_files).
[[nodiscard]] std::filesystem::path prepared_files_folder(const ResolvedJob& plan);

/// Fills such a folder from the first available source: the checkpoint that the run resumes; the section's `weights`,
/// whose config.json gets the dtype of checkpoints (fp32); or the corpus' tokenizer and the section's config.json.
/// Returns the dtypes of the weights by section, for Manifest::dtypes. Does nothing for a run that keeps no state.
/// Throws JobError.
[[nodiscard]] std::map<std::string, std::string> prepare_model_files(const ResolvedJob& plan, const StartPoint& start,
                                                                     const std::filesystem::path& folder);

/// Exports every trained model of the final checkpoint into <train.out>/models, and returns the folders by the names of
/// its sections ("student", "head+trunk"); empty with train.export = "none" or without a final checkpoint.
[[nodiscard]] Result<std::map<std::string, std::string>> export_models(const ResolvedJob& plan,
                                                                       const std::filesystem::path& checkpoint);

}  // namespace maestro
