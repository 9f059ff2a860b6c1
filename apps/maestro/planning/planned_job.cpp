// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/planned_job.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "apps/maestro/run/bundled_apps.hpp"
#include "runtime/core/build_id.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/observe/output_file.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the devices to plan for: as the options give them, else of the kind that the job names, else GPUs if there
/// are any. Looks for a driver only if GPUs may be meant.
PlannedMachine machine_of(const PlanArguments& arguments, const JobDocument& job) {
  const auto names = [&](const std::string& kind) {
    return std::ranges::any_of(job.settings(), [&](const auto& setting) {
      return setting.first.ends_with(".devices") && setting.second.find("\"" + kind + ":") != std::string::npos;
    });
  };
  const bool processors = arguments.cpu_devices > 0 || (names("cpu") && !names("cuda"));
  if (arguments.gpus == 0 && (processors || (!names("cuda") && cuda_status().devices() == 0))) {
    return planned_processors(arguments.cpu_devices);
  }
  return planned_gpus(cuda_status(), arguments.gpus);
}

}  // namespace

PlannedJob::PlannedJob(const PlanArguments& arguments, Console& console)
    : arguments_(arguments), console_(console), app_(arguments, console) {
  machine_ = machine_of(arguments, app_.document());
  std::error_code failure;
  if (!arguments.profile.empty() && fs::exists(arguments.profile, failure)) {
    prices_ = read_profile(arguments.profile).value_or_throw();
    check_profile();
  }
  prices_.build = build_id();
  prices_.devices = machine_.devices;
  if (machine_.gpus != nullptr) prices_.set_gpus(machine_.device);
  JobPlannerOptions options;
  options.machine = machine_;
  options.least = static_cast<std::size_t>(std::max(arguments.top, arguments.tries));
  options.varied.insert(arguments.varied.begin(), arguments.varied.end());
  planner_.emplace([this](const std::vector<std::string>& settings) { return app_.resolve(settings, cpu_devices()); },
                   std::move(options), prices_);
}

void PlannedJob::measure() {
  SectionProfiler profiler(machine_, profiler_options());
  keep_measured([&](const JobPlanner::Progress& progress) { planner_->measure(profiler, progress); });
}

LayoutRanking PlannedJob::rank() {
  SectionProfiler profiler(machine_, profiler_options());
  keep_measured([&](const JobPlanner::Progress& progress) { planner_->measure(profiler, progress); });
  LayoutRanking ranking;
  keep_measured([&](const JobPlanner::Progress& progress) { ranking = planner_->rank(&profiler, progress); });
  return ranking;
}

ProfilerOptions PlannedJob::profiler_options() const {
  ProfilerOptions options;
  options.least = std::chrono::milliseconds(arguments_.measure_ms);
  if (arguments_.measure_ms == 0) options.rounds = 1;
  options.deterministic = base().train.deterministic;
  return options;
}

void PlannedJob::keep_measured(const std::function<void(const JobPlanner::Progress& progress)>& work) {
  std::size_t measured = 0;
  work([&](const std::string& line) {
    check_load();
    console_.note("measuring " + line);
    ++measured;
  });
  if (measured > 0 && !arguments_.profile.empty()) {
    write_profile(prices_, arguments_.profile).or_throw();
    console_.note("wrote     " + printable(arguments_.profile.string()));
  }
}

void PlannedJob::check_load() {
  if (load_ || machine_.gpus != nullptr) return;
  const int cores = static_cast<int>(usable_cores().size());
  load_ = measure_load(std::min(cores, static_cast<int>(machine_.devices)));
  if (const std::string line = load_warning(*load_, cores); !line.empty()) console_.warning("plan: " + line);
}

std::vector<double> PlannedJob::run(const std::vector<std::string>& settings, std::int64_t steps,
                                    const fs::path& folder) const {
  std::vector<std::string> all = settings;
  for (const char* const quiet : {"train.checkpoint_at_end=false", "train.checkpoint_every=0", "train.shadow_every=0",
                                  "train.archive_every=0", "train.validate_every=0", "train.export=\"none\""}) {
    all.emplace_back(quiet);
  }
  all.push_back("train.out=" + quoted(folder.string()));
  if (const TrainConfig& train = base().train; train.steps < steps) {
    const auto samples = static_cast<double>(base().corpus->samples(Split::train));
    const double epochs = static_cast<double>(steps * train.global_batch) / samples;
    all.push_back(train.epochs > 0 ? "train.epochs=" + number_text(epochs) : "train.steps=" + std::to_string(steps));
  }
  RunOptions options;
  options.quiet = true;
  options.cpu_devices = cpu_devices();
  options.fresh = true;
  options.control = "none";
  options.until = static_cast<std::uint64_t>(steps);
  std::ostringstream out;
  Console silent({out, out, false, {}});
  const RunResult result = app_.app(all, std::move(options), silent).run();
  if (result.status != 0) throw JobError("a tried layout did not run: " + out.str());
  if (result.interrupted) throw JobError("interrupted while a layout was tried", ErrorCode::unavailable);
  std::vector<double> times;
  for (std::size_t row = 3; row < result.scheduling.size(); ++row) {
    times.push_back(result.scheduling[row].begin_ms - result.scheduling[row - 1].begin_ms);
  }
  return times;
}

void PlannedJob::check_profile() const {
  if (prices_.device != machine_.device) {
    throw JobError(arguments_.profile.string() + ": measured on " + printable(prices_.device) + ", and plan is for " +
                   machine_.text() + "; give another file");
  }
  if (prices_.devices != machine_.devices) {
    throw JobError(arguments_.profile.string() + ": measured with " + std::to_string(prices_.devices) +
                   " devices at work, and plan is for " + std::to_string(machine_.devices) + "; give " +
                   (machine_.gpus == nullptr ? "--cpu-devices" : "--devices") + ", or another file");
  }
  if (prices_.build == build_id()) return;
  console_.note("note: " + printable(arguments_.profile.string()) +
                " was measured by another build of maestro; remove it to measure anew");
}

}  // namespace maestro
