// SPDX-License-Identifier: Apache-2.0
// The start of a run: its first step, its identity, and the claim on its output folder.
//
// BG-1 (same data): a run resumes from a checkpoint only with the checkpoint's seed, global batch and data;
//       RunOptions::new_data admits other data.
// BG-2 (claimed folder): before rank 0 writes anything, it locks train.out, which must not have checkpoints of other
//       runs (RF-1, RF-2). A run that keeps no state claims nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/record/run_folder.hpp"
#include "runtime/schedule/data_cursor.hpp"

namespace maestro {

/// First step of a run: step 1, or the step after a checkpoint.
struct StartPoint {
  std::filesystem::path checkpoint;  ///< empty for a fresh run
  std::uint64_t first_step = 1;
  Manifest stored;  ///< the checkpoint's manifest
  DataCursor cursor;

  /// Returns whether the first step is a stage's first, so that moments are zero (TS-1).
  [[nodiscard]] bool begins_stage(const ResolvedJob& plan) const {
    return plan.stage.number > 1 && stored.step == static_cast<std::uint64_t>(plan.stage.begin);
  }
  /// Returns whether a trained section continues from the checkpoint. At a stage's begin the checkpoint may lack it.
  [[nodiscard]] bool holds(const ResolvedJob& plan, const std::string& section) const {
    if (checkpoint.empty() || !begins_stage(plan)) return !checkpoint.empty();
    const std::vector<std::string> sections = stored.sections();
    return std::ranges::find(sections, section) != sections.end();
  }
};

/// Returns the index of the stage that a run from `resume` begins in: 0 without a checkpoint.
[[nodiscard]] std::size_t stage_of_start(const TrainingStages& stages, const std::filesystem::path& resume);

/// Resolves and verifies `resume`, a value of --resume; empty: a fresh run. Throws JobError if nothing is found, files
/// are damaged, the seed or the stages differ, the job has fewer steps, or the global batch would skip or repeat
/// samples.
[[nodiscard]] StartPoint find_start_point(const ResolvedJob& plan, const std::filesystem::path& resume);

/// Rank 0's claim on the output folder during the run.
struct RunClaim {
  /// Run, data and settings, which every checkpoint of the run records.
  Manifest origin;
  RunLock lock;
  std::vector<std::string> notes;  ///< printed in the run header
};

/// Checks BG-1 for the data, then establishes BG-2. With check_only it changes nothing, and a run in the folder that a
/// new run would be refused for is a note. `earlier`: the run that starts again, before its first checkpoint. Throws
/// JobError.
[[nodiscard]] RunClaim claim_run(const ResolvedJob& plan, const StartPoint& start,
                                 const std::optional<RunIdentity>& earlier);

/// Returns the identity of a run's data: Corpus::fingerprint(), the weights and the origin() of every frozen section,
/// as others are trained on its outputs, and the weights below adapters (see weights_fingerprint). Throws JobError.
[[nodiscard]] std::map<std::string, std::string> data_fingerprint(const ResolvedJob& plan);

/// Returns how `now` differs from checkpoint `name`, a line per difference. Throws JobError for other data, unless
/// `new_data`. A checkpoint without fingerprints yields a single line about this.
[[nodiscard]] std::vector<std::string> compare_origins(const std::string& name, const Manifest& stored,
                                                       const Manifest& now, bool new_data);

}  // namespace maestro
