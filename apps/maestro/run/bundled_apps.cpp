// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/bundled_apps.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "actors/process/graph_app.hpp"
#include "apps/distill/compose.hpp"
#include "apps/vlm/compose.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::array<BundledApp, 6> apps{{
    {"language_model", compose_language_model},
    {"distillation", compose_distillation},
    {"split_language_model", compose_split_language_model},
    {"vision_language", compose_vision_language},
    {"omni", compose_omni},
    {"graph", compose_graph, true},
}};

}  // namespace

std::span<const BundledApp> bundled_apps() {
  return apps;
}

const BundledApp& read_app(const JobTable& root) {
  std::vector<std::string> names;
  for (const BundledApp& app : apps) names.emplace_back(app.name);
  const std::string wanted = root.choice(
      "app", "", names, {"the app that composes the job's sections; `maestro help` lists the sections of each app"});
  const auto* found = std::ranges::find(apps, wanted, &BundledApp::name);
  if (found != apps.end()) return *found;
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  root.fail("app", "is not given; name the app of this job, one of " + known);
}

fs::path bundled_jobs() {
  const char* repository = std::getenv("MAESTRO_REPOSITORY");
  if (repository != nullptr && fs::is_directory(fs::path(repository) / "apps" / "distill")) {
    return fs::path(repository) / "apps";
  }
  std::error_code problem;
  const fs::path self = fs::read_symlink("/proc/self/exe", problem);
  const fs::path installed = self.parent_path().parent_path() / "share" / "maestro" / "jobs";
  if (fs::is_directory(installed)) return installed;
  throw JobError("the bundled job files are neither in $MAESTRO_REPOSITORY/apps nor in " + installed.string() +
                     "; run ./run distill in the repository, or install maestro with cmake --install",
                 ErrorCode::not_found);
}

}  // namespace maestro
