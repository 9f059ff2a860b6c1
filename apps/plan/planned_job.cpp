// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/planned_job.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "apps/plan/recorded_lengths.hpp"
#include "runtime/core/build_id.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/core/scratch_folder.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/job/quoted.hpp"
#include "runtime/observe/output_file.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the devices to plan for: as the options give them, else of the kind that the job names, else GPUs if there
/// are any. Looks for a driver only if GPUs may be meant.
PlannedMachine machine_of(const PlannedJobOptions& options, const PlannedApp& app) {
  const auto names = [&](const std::string& kind) {
    return std::ranges::any_of(app.settings(), [&](const auto& setting) {
      return setting.first.ends_with(".devices") && setting.second.find("\"" + kind + ":") != std::string::npos;
    });
  };
  const bool processors = options.cpu_devices > 0 || (names("cpu") && !names("cuda"));
  if (options.gpus == 0 && (processors || (!names("cuda") && cuda_status().devices() == 0))) {
    return planned_processors(options.cpu_devices);
  }
  return planned_gpus(cuda_status(), options.gpus);
}

constexpr int rounds_of_tries = 2;

}  // namespace

PlannedJob::PlannedJob(PlannedApp app, PlannedJobOptions options, Console& console)
    : options_(std::move(options)), console_(&console), app_(std::move(app)) {
  machine_ = machine_of(options_, app_);
  std::error_code failure;
  if (!options_.profile.empty() && fs::exists(options_.profile, failure)) {
    prices_ = read_profile(options_.profile).value_or_throw();
    check_profile();
  }
  prices_.build = build_id();
  prices_.devices = machine_.devices;
  if (machine_.gpus != nullptr) prices_.set_gpus(machine_.device);
  JobPlannerOptions planning;
  planning.machine = machine_;
  planning.least = static_cast<std::size_t>(std::max(options_.top, options_.tries));
  planning.varied.insert(options_.varied.begin(), options_.varied.end());
  if (!options_.lengths.empty()) {
    if (app_.generator().empty()) throw JobError("--lengths: the job lacks a generator, whose samples have lengths");
    planning.lengths = recorded_lengths(options_.lengths).value_or_throw();
  }
  planner_.emplace([this](const std::vector<std::string>& settings) { return app_.resolve(settings, cpu_devices()); },
                   std::move(planning), prices_);
}

void PlannedJob::measure() {
  SectionProfiler profiler(machine_, profiler_options());
  keep_measured([&](const JobPlanner::Progress& progress) { planner_->measure(profiler, progress); });
  warn_if_disturbed(profiler);
}

LayoutRanking PlannedJob::rank() {
  SectionProfiler profiler(machine_, profiler_options());
  keep_measured([&](const JobPlanner::Progress& progress) { planner_->measure(profiler, progress); });
  LayoutRanking ranking;
  keep_measured([&](const JobPlanner::Progress& progress) { ranking = planner_->rank(&profiler, progress); });
  warn_if_disturbed(profiler);
  return ranking;
}

ProfilerOptions PlannedJob::profiler_options() const {
  ProfilerOptions options;
  options.least = std::chrono::milliseconds(options_.measure_ms);
  if (options_.measure_ms == 0) options.rounds = 1;
  options.deterministic = base().train.deterministic;
  return options;
}

void PlannedJob::keep_measured(const std::function<void(const JobPlanner::Progress& progress)>& work) {
  std::size_t measured = 0;
  work([&](const std::string& line) {
    check_load();
    console_->note("measuring " + line);
    ++measured;
  });
  if (measured > 0 && !options_.profile.empty()) {
    write_profile(prices_, options_.profile).or_throw();
    console_->note("wrote     " + printable(options_.profile.string()));
  }
}

void PlannedJob::check_load() {
  if (load_ || machine_.gpus != nullptr) return;
  const int cores = static_cast<int>(usable_cores().size());
  load_ = measure_load(std::min(cores, static_cast<int>(machine_.devices)));
  if (const std::string line = load_warning(*load_, cores); !line.empty()) console_->warning("plan: " + line);
}

void PlannedJob::warn_if_disturbed(const SectionProfiler& profiler) const {
  if (profiler.disturbed() == 0) return;
  console_->warning("plan: other processes took part of the cores during " + std::to_string(profiler.disturbed()) +
                    " of " + std::to_string(profiler.measured()) +
                    " measurements, though each was repeated: times are too long, and the order of layouts may be "
                    "wrong; measure on an idle machine, or compare the best with --try");
}

RankingReport PlannedJob::report() {
  RankingReport report;
  report.title = title();
  if (const StageSpan& stage = base().stage; stage.given()) {
    report.stage = base().stages.line(static_cast<std::size_t>(stage.number - 1));
  }
  report.ranking = rank();
  if (options_.tries > 0) report.tried = try_best(report.ranking.best);
  report.certain = planner_->certainties(report.ranking);
  report.global_batch = base().train.global_batch;
  report.generator = app_.generator();
  report.made = planner_->made_samples();
  report.lengths = planner_->lengths().origin();
  report.top = static_cast<std::size_t>(options_.top);
  return report;
}

TriedLayouts PlannedJob::try_best(const std::vector<RankedLayout>& best) const {
  const auto count = std::min(best.size(), static_cast<std::size_t>(options_.tries));
  const ScratchFolder scratch(fs::temp_directory_path(), "maestro-plan", "set TMPDIR");
  std::vector<std::vector<double>> times(count);
  std::vector<double> first;
  for (int round = 0; round < rounds_of_tries; ++round) {
    for (std::size_t at = 0; at < count; ++at) {
      console_->note("running   layout " + std::to_string(at + 1) + ", round " + std::to_string(round + 1));
      const std::vector<double> more = run(best[at].settings, scratch.path());
      if (at == 0) first.push_back(quantile_of(more, 0.5));
      times[at].insert(times[at].end(), more.begin(), more.end());
    }
  }
  TriedLayouts tried;
  for (const auto& each : times) tried.step_ms.push_back(quantile_of(each, 0.5));
  tried.spread = *std::ranges::max_element(first) / *std::ranges::min_element(first) - 1;
  return tried;
}

std::vector<double> PlannedJob::run(const std::vector<std::string>& settings, const fs::path& folder) const {
  const std::int64_t steps = options_.steps;
  std::vector<std::string> all = settings;
  for (const char* const quiet : {"train.checkpoint_at_end=false", "train.checkpoint_every=0", "train.shadow_every=0",
                                  "train.archive_every=0", "train.validate_every=0", "train.export=\"none\""}) {
    all.emplace_back(quiet);
  }
  all.push_back("train.out=" + quoted(folder.string()));
  if (const TrainConfig& train = base().train; train.steps < steps && !base().stage.given()) {
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
    throw JobError(options_.profile.string() + ": measured on " + printable(prices_.device) + ", and plan is for " +
                   machine_.text() + "; give another file");
  }
  if (prices_.devices != machine_.devices) {
    throw JobError(options_.profile.string() + ": measured with " + std::to_string(prices_.devices) +
                   " devices at work, and plan is for " + std::to_string(machine_.devices) + "; give " +
                   (machine_.gpus == nullptr ? "--cpu-devices" : "--devices") + ", or another file");
  }
  if (prices_.build == build_id()) return;
  console_->note("note: " + printable(options_.profile.string()) +
                 " was measured by another build of maestro; remove it to measure anew");
}

const RankedLayout& chosen_layout(const RankingReport& report) {
  const std::vector<RankedLayout>& best = report.ranking.best;
  if (!report.tried) return best.front();
  const std::vector<double>& tried = report.tried->step_ms;
  return best[static_cast<std::size_t>(std::ranges::min_element(tried) - tried.begin())];
}

PlanConfig prediction_of(const RankedLayout& layout) {
  PlanConfig predicted;
  predicted.predicted_step_ms = layout.step_ms;
  predicted.predicted_passes_ms = layout.passes_ms;
  return predicted;
}

}  // namespace maestro
