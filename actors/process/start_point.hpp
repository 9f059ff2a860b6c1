// SPDX-License-Identifier: Apache-2.0
// Where a run begins, the run it belongs to, and what it may write.
//
// BG-1: a run goes on from a checkpoint only with the seed, the global batch and the data that it was made
//       with; RunOptions::new_data admits other data.
// BG-2: before rank 0 writes anything it holds train.out, which has no checkpoints of other runs (RF-1,
//       RF-2). A run that keeps no state holds nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "runtime/state/manifest.hpp"
#include "runtime/state/run_folder.hpp"

namespace maestro {

/// Where a run begins: at step 1, or behind a checkpoint.
struct StartPoint {
  std::filesystem::path checkpoint;  ///< empty for a fresh run
  std::uint64_t first_step = 1;
  Manifest stored;  ///< of the checkpoint
};

/// Resolves and verifies --resume. Throws JobError: nothing there, damaged files, another seed, a global batch that
/// would skip or repeat samples.
[[nodiscard]] StartPoint find_start_point(const JobPlan& plan);

/// What rank 0 holds of a run while it lasts.
struct RunClaim {
  /// Run, data and settings, as every checkpoint of the run records them.
  Manifest origin;
  RunLock lock;
  std::vector<std::string> notes;  ///< for people
};

/// BG-1 for the data, then BG-2. With check_only nothing is made or moved; it fails where a run would. Throws JobError.
[[nodiscard]] RunClaim claim_run(const JobPlan& plan, const StartPoint& start);

/// What makes the data of a run what they are: Corpus::fingerprint(), and the weights of every frozen section, whose
/// outputs others are trained on (see weights_fingerprint). Throws JobError.
[[nodiscard]] std::map<std::string, std::string> data_fingerprint(const JobPlan& plan);

/// How `now` differs from what the checkpoint `name` records, a line each. Throws JobError for other data, unless
/// `new_data`. A checkpoint of a version without fingerprints gets one line that says so.
[[nodiscard]] std::vector<std::string> compare_origins(const std::string& name, const Manifest& stored,
                                                       const Manifest& now, bool new_data);

}  // namespace maestro
