// SPDX-License-Identifier: Apache-2.0
// The maestro command line. Exit status: 0 done (also after a first Ctrl-C or SIGTERM), 1 the run failed, 2 wrong
// input, 130 left at a second Ctrl-C, or ended by a signal before the first step.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <new>

#include "actors/process/signal_watcher.hpp"
#include "apps/maestro/card_command.hpp"
#include "apps/maestro/control_commands.hpp"
#include "apps/maestro/data_command.hpp"
#include "apps/maestro/distill_command.hpp"
#include "apps/maestro/emulate_command.hpp"
#include "apps/maestro/export_command.hpp"
#include "apps/maestro/fleet_command.hpp"
#include "apps/maestro/generate_command.hpp"
#include "apps/maestro/help_command.hpp"
#include "apps/maestro/join_command.hpp"
#include "apps/maestro/keys_command.hpp"
#include "apps/maestro/new_command.hpp"
#include "apps/maestro/plan_command.hpp"
#include "apps/maestro/prepare_command.hpp"
#include "apps/maestro/replay_command.hpp"
#include "apps/maestro/run_options.hpp"
#include "apps/maestro/samples_command.hpp"
#include "apps/maestro/schema_command.hpp"
#include "apps/maestro/sections_command.hpp"
#include "apps/maestro/simulate_command.hpp"
#include "apps/maestro/teach_command.hpp"
#include "apps/maestro/tokenize_command.hpp"
#include "apps/maestro/train_command.hpp"
#include "apps/maestro/usage_error.hpp"
#include "apps/maestro/vlm_command.hpp"
#include "apps/maestro/watch_commands.hpp"
#include "apps/maestro/what_if_command.hpp"
#include "runtime/core/last_words.hpp"
#include "runtime/core/listed_error.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

/// Runs before the constructors of libraries. A signal that arrives before main has set its handler would end the
/// program without a line; so it waits for prepare_signals().
void hold_signals(int, char**, char**) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const hold_signals_first)(int, char**, char**) = hold_signals;

/// Runs the given command among these. Returns its exit status.
template <class... Commands>
int run_given(Console& console, const Commands&... commands) {
  int status = 0;
  const auto run = [&](const auto& command) {
    if (!command.given()) return false;
    status = command.run(console);
    return true;
  };
  (void)(run(commands) || ...);
  return status;
}

int run(int argc, char** argv, Console& console) {
  CLI::App app("maestro: actor-based dataflow runtime for compound LLM training", "maestro");
  app.set_version_flag("--version", std::string("maestro ") + MAESTRO_VERSION);
  app.require_subcommand(1);
  TrainCommand train(app);
  CheckCommand check(app);
  DistillCommand distill(app);
  VisionLanguageCommand vlm(app);
  SimulateCommand simulate(app);
  WhatIfCommand what_if(app);
  FleetCommand fleet(app);
  EmulateCommand emulate(app);
  TeachCommand teach(app);
  ExportCommand exporting(app);
  KeysCommand keys(app);
  TokenizeCommand tokenize(app);
  PrepareCommand prepare(app);
  DataCommand data(app);
  SamplesCommand samples(app);
  ReplayCommand replay(app);
  CardCommand card(app);
  GenerateCommand generate(app);
  ControlCommands control(app);
  PlanCommand plan(*app.get_subcommand("plan"));
  ProfileCommand profile(app);
  WatchCommands watch(app);
  JoinCommand join(app);
  HelpCommand help(app);
  SectionsCommand sections(app);
  NewCommand fresh(app);
  SchemaCommand schema(app);
  CompletionCommand completion(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
    console.error(usage_error(app, problem, std::vector<std::string>(argv + 1, argv + argc)));
    return 2;
  }
  return run_given(console, train, check, distill, vlm, simulate, what_if, fleet, emulate, teach, exporting, keys,
                   tokenize, prepare, data, samples, replay, card, generate, plan, profile, control, watch, join, help,
                   sections, fresh, schema, completion);
}

}  // namespace
}  // namespace maestro

int main(int argc, char** argv) {
  maestro::prepare_signals();
  maestro::prepare_last_words();
  maestro::Console console(maestro::standard_streams());
  if (maestro::requests_json_lines(std::vector<std::string>(argv + 1, argv + argc))) {
    console.use_json();
    maestro::set_form_of_last_words(maestro::LineForm::json);
  }
  try {
    return maestro::run(argc, argv, console);
  } catch (const maestro::ListedError& problem) {
    console.error(problem);
    return 2;
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
