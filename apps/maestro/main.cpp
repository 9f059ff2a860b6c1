// SPDX-License-Identifier: Apache-2.0
// The maestro command line. Exit status: 0 done (also after one Ctrl-C or SIGTERM), 1 the run failed, 2 wrong input,
// 130 left at a second Ctrl-C, or ended by a signal before the first step.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <new>

#include "actors/process/signal_watcher.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/control_commands.hpp"
#include "apps/maestro/keys_command.hpp"
#include "apps/maestro/usage_error.hpp"
#include "runtime/core/last_words.hpp"
#include "runtime/core/result.hpp"

namespace {

/// Runs before the constructors of libraries: until main takes them back, libpsm2 answers signals with a backtrace and
/// exit(1). Those that come meanwhile wait for prepare_signals().
void hold_signals(int, char**, char**) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const hold_signals_first)(int, char**, char**) = hold_signals;

void add_run_options(CLI::App& command, maestro::RunOptions& run) {
  CLI::Option* processes =
      command.add_option("--processes", run.processes, "processes on this machine; rank 0 coordinates")
          ->check(CLI::Range(1, 64));
  command
      .add_option("--hosts", run.hosts, "a,b:2: processes on these hosts, started by ssh; this machine is the first")
      ->excludes(processes);
  command.add_option("--ssh", run.ssh, "remote shell and its options (default: ssh)");
  command.add_option("--listen", run.listen, "address or interface to listen on, or auto (default: loopback)");
  command.add_option("--keys", run.keys, "folder of certificates and token, as made by maestro keys");
  command.add_option("--cpu-devices", run.cpu_devices, "lay this many devices over the cores that are there")
      ->check(CLI::Range(1, 4096));
  command.add_option("--report", run.report, "write a JSON report here");
  command.add_option("--trace", run.trace, "write a Perfetto trace here");
  command.add_option(
      "--control", run.control,
      "serve status and steering at unix:/PATH or HOST:PORT (default: a socket of this user); none: off");
}

void add_start_options(CLI::App& command, maestro::RunOptions& run) {
  CLI::Option* resume =
      command.add_option("--resume", run.resume, "go on from the last checkpoint of the run in this folder");
  command.add_flag("--new-data", run.new_data, "go on with other data than the checkpoint was made with")
      ->needs(resume);
  command.add_flag("--fresh", run.fresh, "move an earlier run in train.out to <out>.1 (or .2, ...) and begin anew")
      ->excludes(resume);
}

}  // namespace

int main(int argc, char** argv) {
  maestro::prepare_signals();
  maestro::prepare_last_words();
  CLI::App app("maestro: actor-based dataflow runtime for compound LLM training", "maestro");
  app.set_version_flag("--version", std::string("maestro ") + MAESTRO_VERSION);
  app.require_subcommand(1);

  maestro::TrainArguments train;
  train.run.joins = true;
  CLI::App* train_command = app.add_subcommand("train", "train what a job file describes");
  train_command->add_option("job", train.job, "job file (TOML)")->required();
  train_command->add_option("--set", train.overrides, "override a key: --set student.micro_batch=4")
      ->allow_extra_args(false);
  add_start_options(*train_command, train.run);
  add_run_options(*train_command, train.run);

  maestro::TrainArguments check;
  check.run.check_only = true;
  CLI::App* check_command = app.add_subcommand("check", "validate a job file without running it");
  check_command->add_option("job", check.job, "job file (TOML)")->required();
  check_command->add_option("--set", check.overrides, "override a key")->allow_extra_args(false);
  check_command->add_option("--processes", check.run.processes, "processes to plan for")->check(CLI::Range(1, 64));
  check_command->add_option("--cpu-devices", check.run.cpu_devices, "devices laid over the cores that are there")
      ->check(CLI::Range(1, 4096));
  add_start_options(*check_command, check.run);

  maestro::DistillArguments distill;
  CLI::App* distill_command = app.add_subcommand("distill", "train a teacher, distil a student from it, compare");
  distill_command->add_option("--data", distill.data, "text file or folder (default: the repository's own text)");
  distill_command->add_option("--out", distill.out, "folder for weights, checkpoints, report and trace");
  distill_command->add_option("--seed", distill.seed, "random seed");
  distill_command->add_option("--set", distill.overrides, "override a key of the distillation job")
      ->allow_extra_args(false);
  distill_command->add_option("--teacher-set", distill.teacher_overrides, "override a key of the teacher's job")
      ->allow_extra_args(false);
  add_run_options(*distill_command, distill.run);

  maestro::VisionLanguageArguments vlm;
  CLI::App* vlm_command = app.add_subcommand("vlm", "train a small vision-language model, and show what it answers");
  CLI::Option* vlm_data =
      vlm_command->add_option("--data", vlm.data, "conversations in LLaVA's format (default: drawn scenes)");
  vlm_command->add_option("--images", vlm.images, "folder of their pictures (default: images beside the file)")
      ->needs(vlm_data);
  vlm_command->add_option("--validation", vlm.validation, "conversations to validate with (default: some of --data)")
      ->needs(vlm_data);
  vlm_command->add_option("--out", vlm.out, "folder for scenes, weights, report, trace and page");
  vlm_command->add_option("--seed", vlm.seed, "random seed")->check(CLI::NonNegativeNumber);
  vlm_command->add_option("--shown", vlm.shown, "validation pictures on the page")->check(CLI::Range(0, 10000));
  vlm_command->add_option("--set", vlm.overrides, "override a key of the job")->allow_extra_args(false);
  add_run_options(*vlm_command, vlm.run);

  maestro::SimulateArguments simulate;
  CLI::App* simulate_command = app.add_subcommand("simulate", "plan a workload file in virtual time");
  simulate_command->add_option("workload", simulate.workload, "workload file (JSON)")->required();
  simulate_command->add_option("--policy", simulate.policy, "arrival, bulk_synchronous or wavefront (default)");
  simulate_command->add_option("--timeline", simulate.timeline, "also write the passes here, for Perfetto");
  simulate_command->add_option("--budget-ms", simulate.budget_ms, "plan for so long (default: a fixed number of tries)")
      ->check(CLI::Range(1.0, 3.6e6));
  simulate_command->add_option("--seed", simulate.seed, "of the search for an order")->check(CLI::NonNegativeNumber);

  maestro::EmulateArguments emulate;
  CLI::App* emulate_command = app.add_subcommand("emulate", "run a workload on emulated devices, with real actors");
  emulate_command->add_option("workload", emulate.workload, "workload file (JSON, see docs/workloads.md)")->required();
  emulate_command->add_option("--policy", emulate.policy, "arrival, bulk_synchronous or wavefront");
  emulate_command->add_option("--steps", emulate.steps, "how often the workload is run")->check(CLI::PositiveNumber);
  emulate_command->add_option("--columns", emulate.columns, "floats that a sample sends over an edge")
      ->check(CLI::PositiveNumber);
  emulate_command->add_option("--evaluations", emulate.evaluations, "schedules that a plan tries")
      ->check(CLI::PositiveNumber);
  add_run_options(*emulate_command, emulate.run);

  const maestro::KeysCommand keys(app);
  const maestro::ControlCommands control(app);

  maestro::Console console(maestro::standard_streams());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
    console.error(maestro::usage_error(app, problem, std::vector<std::string>(argv + 1, argv + argc)));
    return 2;
  }

  try {
    if (*emulate_command) return maestro::emulate(emulate, console);
    if (*train_command) return maestro::train(train, console).status;
    if (*distill_command) return maestro::distill(distill, console);
    if (*vlm_command) return maestro::vision_language(vlm, console);
    if (keys.given()) return keys.run(console);
    if (control.given()) return control.run(console);
    if (*simulate_command) return maestro::simulate(simulate, console);
    maestro::train(check, console);
    console.note(check.job.string() + ": ok");
    return 0;
  } catch (const maestro::JobError& problem) {
    console.error(problem.what());
    return 2;
  } catch (const std::bad_alloc&) {
    console.error("not enough memory: free some, or raise the limit of this process (ulimit -v, cgroup)");
    return 1;
  } catch (const std::exception& problem) {
    console.error(std::string("internal error: ") + problem.what());
    return 1;
  }
}
