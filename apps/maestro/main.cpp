// SPDX-License-Identifier: Apache-2.0
// The maestro command line. Exit status: 0 done (also after a first Ctrl-C or SIGTERM), 1 the run failed, 2 wrong
// input, 130 left at a second Ctrl-C, or ended by a signal before the first step.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <new>

#include "actors/process/signal_watcher.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/help/usage_error.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "runtime/core/last_words.hpp"
#include "runtime/core/listed_error.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

/// Runs before the constructors of libraries. A signal that arrives before main has set its handler would end the
/// program without a message; so signals wait for prepare_signals().
void hold_signals(int, char**, char**) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const hold_signals_first)(int, char**, char**) = hold_signals;

/// The commands, in the order of --help.
constexpr void (*add_commands[])(Commands&) = {
    add_train,  add_check,   add_distill, add_vlm,      add_simulate, add_what_if, add_fleet,  add_emulate,
    add_teach,  add_export,  add_keys,    add_tokenize, add_prepare,  add_data,    add_look,   add_samples,
    add_replay, add_card,    add_compare, add_generate, add_runs,     add_control, add_plan,   add_profile,
    add_watch,  add_metrics, add_join,    add_help,     add_sections, add_new,     add_schema, add_completion,
};

int run(int argc, char** argv, Console& console) {
  CLI::App app("maestro: actor-based dataflow runtime for compound LLM training", "maestro");
  app.set_version_flag("--version", std::string("maestro ") + MAESTRO_VERSION);
  app.require_subcommand(1);
  Commands commands(app);
  for (const auto add : add_commands) add(commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
    console.error(usage_error(app, problem, std::vector<std::string>(argv + 1, argv + argc)));
    return 2;
  }
  return commands.run(console);
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
