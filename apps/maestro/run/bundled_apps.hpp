// SPDX-License-Identifier: Apache-2.0
// The apps of this program and their job files.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "actors/process/app.hpp"
#include "runtime/job/quoted.hpp"  // IWYU pragma: export

namespace maestro {

struct BundledApp {
  const char* name;  ///< in job files: app = "distillation"
  void (*compose)(App&);
  bool of_job_file = false;  ///< sections come from the job file
};
[[nodiscard]] std::span<const BundledApp> bundled_apps();

/// Reads `app` of a job file's top level. Throws JobError for an absent or unknown name.
[[nodiscard]] const BundledApp& read_app(const JobTable& root);

/// Returns the folder of the bundled job files, in the repository or in this program's installation. Throws JobError.
[[nodiscard]] std::filesystem::path bundled_jobs();

}  // namespace maestro
