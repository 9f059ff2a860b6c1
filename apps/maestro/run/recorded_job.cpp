// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/recorded_job.hpp"

#include "actors/process/start_point.hpp"
#include "apps/emulate/compose.hpp"
#include "apps/maestro/run/bundled_apps.hpp"

namespace maestro {

namespace {
constexpr std::int64_t devices_of_any_job = 1024;  // devices without a replica are not opened
}  // namespace

JobDocument job_document(const std::string& job, const std::string& where, const std::vector<std::string>& overrides,
                         const PlugInChoice& plug_ins) {
  JobDocument document = JobDocument::parse(job, where, overrides);
  const auto loaded = plug_in_settings(document, plug_ins, NamedPlugIns::asked_for);
  if (loaded.empty()) return document;
  std::vector<std::string> all = overrides;
  all.insert(all.end(), loaded.begin(), loaded.end());
  return JobDocument::parse(job, where, all);
}

App job_app(JobDocument document, RunOptions options, Console& console) {
  const bool emulates = !document.root().has("app") && document.root().has("workload");
  const BundledApp* const bundled = emulates ? nullptr : &read_app(document.root());
  if (options.cpu_devices == 0) options.cpu_devices = devices_of_any_job;
  App app(std::move(document), std::move(options), console);
  emulates ? compose_emulation(app) : bundled->compose(app);
  return app;
}

JobDocument recorded_document(const std::filesystem::path& record, const RunStart& start,
                              const std::vector<std::string>& overrides, const PlugInChoice& plug_ins) {
  return job_document(start.job_file, "the job in " + (record / events_file).string(), overrides, plug_ins);
}

std::string changed_data(const RunStart& start, const std::map<std::string, std::string>& now) {
  Manifest then, current;
  current.data = now;
  for (const auto& [name, value] : start.data) {
    if (now.contains(name)) then.data.emplace(name, value);
  }
  const std::vector<std::string> changed = compare_origins("the record", then, current, true);
  constexpr std::string_view before = "other data than before: ";
  if (changed.empty()) return {};
  return changed.front().starts_with(before) ? changed.front().substr(before.size()) : changed.front();
}

}  // namespace maestro
