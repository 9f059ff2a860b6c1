// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/train_job.hpp"

#include "apps/maestro/run/bundled_apps.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns settings for sections whose folder of weights is gone: they take shape and tokenizer from the resumed
/// checkpoint, which also holds their weights. Adds a note about each to `run`.
std::vector<std::string> settings_of_checkpoint(const JobDocument& job, RunOptions& run) {
  std::vector<std::string> settings;
  if (run.resume.empty()) return settings;
  const auto checkpoint = resolve_checkpoint(run.resume);
  const auto stored = checkpoint ? load_checkpoint(*checkpoint) : checkpoint.error();
  if (!stored) return settings;  // the run itself reports it
  for (const std::string& section : stored->sections()) {
    const JobTable table = job.root().table(section);
    const std::string weights = table.text("weights", "");
    std::error_code failure;
    if (table.has("lora")) continue;  // its checkpoint has only adapters
    if (weights.empty() || weights == random_weights || fs::exists(weights, failure)) continue;
    const std::string instead = (*checkpoint / section).string();
    settings.push_back(section + ".weights=" + quoted(instead));
    run.notes.push_back(section + ".weights: " + printable(weights) + " does not exist; the section continues from " +
                        instead);
  }
  return settings;
}

/// Resolves --resume auto: the run in train.out if it has a checkpoint, else a run from the start. A damaged checkpoint
/// is left to the run, which reports it.
void resolve_auto(const JobDocument& job, RunOptions& run) {
  if (run.resume != "auto") return;
  const std::string out = read_train(job.root().table("train")).out;
  const auto checkpoint = resolve_checkpoint(out);
  const bool none = !checkpoint && checkpoint.error().code == ErrorCode::not_found;
  run.resume = none ? "" : out;
  if (none) run.notes.push_back("--resume auto: " + printable(out) + " has no checkpoint; the run starts at step 1");
}

}  // namespace

App app_of(const TrainArguments& arguments, Console& console) {
  RunOptions run = arguments.run;
  std::vector<std::string> given = arguments.overrides;
  JobDocument job = JobDocument::load(arguments.job, given);
  const NamedPlugIns named = run.check_only ? NamedPlugIns::asked_for : NamedPlugIns::loaded;
  if (const auto loaded = plug_in_settings(job, arguments.plug_ins, named); !loaded.empty()) {
    given.insert(given.end(), loaded.begin(), loaded.end());
    job = JobDocument::load(arguments.job, given);
  }
  std::vector<std::string> settings = given;
  resolve_auto(job, run);
  if (const auto more = settings_of_checkpoint(job, run); !more.empty()) {
    settings.insert(settings.end(), more.begin(), more.end());
    job = JobDocument::load(arguments.job, settings);
  }
  const BundledApp& bundled = read_app(job.root());
  run.command = {"train", arguments.job.string()};
  for (const std::string& setting : given) {
    run.command.push_back("--set");
    run.command.push_back(setting);
  }
  if (run.cpu_devices > 0) {
    run.command.insert(run.command.end(), {"--cpu-devices", std::to_string(run.cpu_devices)});
  }
  if (!run.resume.empty()) run.command.insert(run.command.end(), {"--resume", run.resume.string()});
  if (!run.trace.empty()) run.command.insert(run.command.end(), {"--trace", run.trace.string()});
  const std::vector<std::string> log = log_arguments(run.log_format);
  run.command.insert(run.command.end(), log.begin(), log.end());
  App app(std::move(job), std::move(run), console);
  bundled.compose(app);
  return app;
}

RunResult train(const TrainArguments& arguments, Console& console) {
  return app_of(arguments, console).run();
}

fs::path output_folder(const TrainArguments& arguments) {
  return read_train(JobDocument::load(arguments.job, arguments.overrides).root().table("train")).out;
}

}  // namespace maestro
