// SPDX-License-Identifier: Apache-2.0
// The start of a run: first step, identity of the run, claim of its output folder.
//
// BG-1 (same data): a run resumes from a checkpoint only with the checkpoint's seed, global batch and data;
//       RunOptions::new_data admits other data.
// BG-2 (claimed folder): before rank 0 writes anything it holds train.out, which has no checkpoints of other runs
//       (RF-1, RF-2). A run that keeps no state claims nothing.
#pragma once

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
  Manifest stored;  ///< of the checkpoint
  DataCursor cursor;
};

/// Resolves and verifies `resume`, as of --resume; empty: a fresh run. Throws JobError: nothing there, damaged files,
/// another seed, more steps than the job has, a global batch that would skip or repeat samples.
[[nodiscard]] StartPoint find_start_point(const ResolvedJob& plan, const std::filesystem::path& resume);

/// Claim of rank 0 on the output folder while the run lasts.
struct RunClaim {
  /// Run, data and settings, as every checkpoint of the run records them.
  Manifest origin;
  RunLock lock;
  std::vector<std::string> notes;  ///< printed in the run header
};

/// Checks BG-1 for the data, then establishes BG-2. With check_only it changes nothing and fails where a run would.
/// `earlier`: the run that starts again, without a checkpoint so far. Throws JobError.
[[nodiscard]] RunClaim claim_run(const ResolvedJob& plan, const StartPoint& start,
                                 const std::optional<RunIdentity>& earlier);

/// Returns the identity of a run's data: Corpus::fingerprint(), and the weights and the origin() of every frozen
/// section, whose outputs others are trained on, and the weights below adapters (see weights_fingerprint). Throws
/// JobError.
[[nodiscard]] std::map<std::string, std::string> data_fingerprint(const ResolvedJob& plan);

/// Returns how `now` differs from the data of checkpoint `name`, a line per difference. Throws JobError for other data,
/// unless `new_data`. A checkpoint without fingerprints yields a single line about that.
[[nodiscard]] std::vector<std::string> compare_origins(const std::string& name, const Manifest& stored,
                                                       const Manifest& now, bool new_data);

}  // namespace maestro
