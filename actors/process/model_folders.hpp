// SPDX-License-Identifier: Apache-2.0
// The folders of a run's models: the files beside the weights, which rank 0 gathers at the start so that they outlive
// the folders that they come from, and the exports at the end.
//
// MF-1 (a single writer): rank 0 writes the prepared files before the run begins; checkpoints take them from there,
//       with the writer of a section's part 0.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "actors/process/start_point.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// Where rank 0 puts a folder by trained section for CheckpointStoreOptions::model_files: <train.out>/.files.
[[nodiscard]] std::filesystem::path prepared_files_folder(const ResolvedJob& plan);

/// Fills such a folder: from the checkpoint that the run resumes, else from a section's `weights` (its config.json
/// kept, with the dtype of checkpoints, fp32), else from the corpus' tokenizer and the section's own config.json.
/// Returns the dtypes of the weights by section, for Manifest::dtypes. A run that keeps no state prepares nothing.
/// Throws JobError.
[[nodiscard]] std::map<std::string, std::string> prepare_model_files(const ResolvedJob& plan, const StartPoint& start,
                                                                     const std::filesystem::path& folder);

/// Exports every trained section of the checkpoint at the end into <train.out>/models and returns the folders by
/// section: none with train.export = "none" or without a checkpoint at the end.
[[nodiscard]] Result<std::map<std::string, std::string>> export_models(const ResolvedJob& plan,
                                                                       const std::filesystem::path& checkpoint);

}  // namespace maestro
