// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "apps/distill/compose.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/vlm/compose.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {

namespace {

struct BundledApp {
  const char* name;
  void (*compose)(App&);
};
constexpr BundledApp bundled_apps[] = {
    {"language_model", compose_language_model},
    {"distillation", compose_distillation},
    {"split_language_model", compose_split_language_model},
    {"vision_language", compose_vision_language},
};

const BundledApp& find_app(const JobDocument& job) {
  std::vector<std::string> names;
  for (const BundledApp& app : bundled_apps) names.emplace_back(app.name);
  const std::string wanted = job.root().choice("app", "", names);
  for (const BundledApp& app : bundled_apps) {
    if (app.name == wanted) return app;
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  job.root().fail("app", "say which app this job is for, one of " + known);
}

}  // namespace

RunResult train(const TrainArguments& arguments, Console& console) {
  JobDocument job = JobDocument::load(arguments.job, arguments.overrides);
  const BundledApp& bundled = find_app(job);
  RunOptions run = arguments.run;
  run.command = {"train", arguments.job.string()};
  for (const std::string& setting : arguments.overrides) {
    run.command.push_back("--set");
    run.command.push_back(setting);
  }
  if (run.cpu_devices > 0) {
    run.command.insert(run.command.end(), {"--cpu-devices", std::to_string(run.cpu_devices)});
  }
  if (!run.resume.empty()) run.command.insert(run.command.end(), {"--resume", run.resume.string()});
  if (!run.trace.empty()) run.command.insert(run.command.end(), {"--trace", run.trace.string()});
  App app(std::move(job), std::move(run), console);
  bundled.compose(app);
  return app.run();
}

}  // namespace maestro
