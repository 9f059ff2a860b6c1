// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/train_command.hpp"

#include "apps/maestro/bundled_apps.hpp"
#include "apps/maestro/end_lines.hpp"
#include "apps/maestro/graph_print.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run_options.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/state/checkpoint.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the settings by which sections whose folder of weights has gone take shape and tokenizer from the
/// checkpoint that is resumed, which holds their weights too. `run` gets a note of each.
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
    if (table.has("lora")) continue;  // its checkpoint has adapters alone
    if (weights.empty() || weights == random_weights || fs::exists(weights, failure)) continue;
    const std::string instead = (*checkpoint / section).string();
    settings.push_back(section + ".weights=" + quoted(instead));
    run.notes.push_back(section + ".weights: " + printable(weights) + " does not exist; the section goes on from " +
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

namespace {

/// Prints the graph of an app in a form: text, dot or svg.
void print_graph(App app, const std::string& form, Console& console) {
  const JobPlan plan = app.plan();
  PrintedGraph graph{plan, {}};
  for (const auto& [section, type] : app.section_types()) {
    graph.types[section] = read_type(app.table(section), type);
  }
  std::string text = form == "dot" ? graph_dot(graph) : form == "svg" ? graph_svg(graph) : graph_text(graph);
  text.pop_back();  // note() ends the line
  console.text(text);
}

/// Returns the composed app of a job file. Throws JobError.
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

}  // namespace

RunResult train(const TrainArguments& arguments, Console& console) {
  return app_of(arguments, console).run();
}

fs::path output_folder(const TrainArguments& arguments) {
  return read_train(JobDocument::load(arguments.job, arguments.overrides).root().table("train")).out;
}

JobCommand::JobCommand(CLI::App& app, const std::string& name, const std::string& help, const std::string& help_of_set)
    : command_(app.add_subcommand(name, help)) {
  command_->add_option("job", arguments_.job, "job file (TOML)")->required();
  command_->add_option("--set", arguments_.overrides, help_of_set)->allow_extra_args(false);
  add_plug_in_options(*command_, arguments_.plug_ins);
}

TrainCommand::TrainCommand(CLI::App& app)
    : JobCommand(app, "train", "train the job of a file", "override a key: --set student.micro_batch=4") {
  arguments_.run.joins = true;
  add_start_options(*command_, arguments_.run);
  add_run_options(*command_, arguments_.run);
}

int TrainCommand::run(Console& console) const {
  const RunResult result = train(arguments_, console);
  if (result.status == 0) print_summary(result, console);
  return result.status;
}

CheckCommand::CheckCommand(CLI::App& app)
    : JobCommand(app, "check", "validate a job file without running it", "override a key") {
  RunOptions& run = arguments_.run;
  run.check_only = true;
  command_->add_option("--processes", run.processes, "processes to plan for")->check(whole_number(1, 64));
  command_->add_option("--cpu-devices", run.cpu_devices, "devices to lay over the host's cores")
      ->check(whole_number(1, 4096));
  add_start_options(*command_, run);
  command_->add_option("--graph", graph_, "print the sections and edges: as text, dot (Graphviz) or svg")
      ->expected(0, 1)
      ->default_str("text")
      ->check(CLI::IsMember({"text", "dot", "svg"}));
}

int CheckCommand::run(Console& console) const {
  if (!graph_.empty()) {
    print_graph(app_of(arguments_, console), graph_, console);
    return 0;
  }
  train(arguments_, console);
  console.note(arguments_.job.string() + ": ok");
  return 0;
}

}  // namespace maestro
