// SPDX-License-Identifier: Apache-2.0
// The sub-commands of the program: functions that add them, each in NAME_command.cpp with its arguments. A new one gets
// a declaration here, a place in the table of main.cpp, and a row in docs/command-line.md.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/observe/console.hpp"

namespace maestro {

class Commands {
 public:
  template <class Arguments>
  struct Added {
    CLI::App& command;     ///< takes the options
    Arguments& arguments;  ///< lives as long as Commands
  };

  /// `program` outlives this.
  explicit Commands(CLI::App& program) : program_(program) {}

  [[nodiscard]] const CLI::App& program() const { return program_; }

  /// Adds a command. `run` gets the parsed arguments; it returns the exit status or throws JobError.
  template <class Arguments>
  Added<Arguments> add(const std::string& name, const std::string& help,
                       int (*run)(const Arguments& arguments, Console& console)) {
    const auto arguments = std::make_shared<Arguments>();  // shared, as std::function copies its closure
    CLI::App* const command = program_.add_subcommand(name, help);
    added_.push_back({command, [=](Console& console) { return run(*arguments, console); }});
    return {*command, *arguments};
  }

  /// Runs the command that `program` has parsed. Returns its exit status; 0 without one.
  [[nodiscard]] int run(Console& console) const {
    for (const auto& [command, run] : added_) {
      if (command->parsed()) return run(console);
    }
    return 0;
  }

 private:
  struct Command {
    CLI::App* app;  // belongs to program_
    std::function<int(Console&)> run;
  };
  CLI::App& program_;
  std::vector<Command> added_;
};

void add_train(Commands& commands);
void add_check(Commands& commands);
void add_distill(Commands& commands);
void add_vlm(Commands& commands);
void add_simulate(Commands& commands);
void add_what_if(Commands& commands);
void add_fleet(Commands& commands);
void add_emulate(Commands& commands);
void add_teach(Commands& commands);
void add_export(Commands& commands);
void add_keys(Commands& commands);
void add_tokenize(Commands& commands);
void add_prepare(Commands& commands);
void add_data(Commands& commands);
void add_look(Commands& commands);
void add_samples(Commands& commands);
void add_replay(Commands& commands);
void add_card(Commands& commands);
void add_compare(Commands& commands);
void add_generate(Commands& commands);
void add_control(Commands& commands);  // status, show-plan, checkpoint, pause, continue, stop and leave
void add_runs(Commands& commands);
void add_plan(Commands& commands);
void add_profile(Commands& commands);
void add_watch(Commands& commands);
void add_metrics(Commands& commands);
void add_join(Commands& commands);
void add_help(Commands& commands);
void add_sections(Commands& commands);
void add_new(Commands& commands);
void add_schema(Commands& commands);
void add_completion(Commands& commands);

}  // namespace maestro
