// SPDX-License-Identifier: Apache-2.0
// `maestro schema` and `maestro completion`: words of this program and of job files, for editors and shells.
#include <nlohmann/json.hpp>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/help/job_schema.hpp"
#include "apps/maestro/help/shell_completion.hpp"
#include "apps/maestro/run/plug_in_option.hpp"

namespace maestro {

namespace {

/// Returns a program's words, without hidden options.
CompletedProgram words_of(const CLI::App& program) {
  CompletedProgram words;
  words.name = program.get_name();
  for (const CLI::App* each : program.get_subcommands([](const CLI::App*) { return true; })) {
    CompletedCommand& command =
        words.commands.emplace_back(CompletedCommand{each->get_name(), each->get_description(), {}});
    for (const CLI::Option* option : each->get_options()) {
      if (option->get_lnames().empty() || option->get_group().empty()) continue;
      command.options.push_back(
          {"--" + option->get_lnames().front(), option->get_description(), option->get_items_expected_max() > 0});
    }
  }
  words.keys = JobReference().keys();
  return words;
}

struct SchemaArguments {
  PlugInChoice plug_ins;
};

int run_schema(const SchemaArguments& arguments, Console& console) {
  console.answer(job_schema(JobReference(types_with(arguments.plug_ins.files).sections)).dump(1));
  return 0;
}

struct CompletionArguments {
  const CLI::App* program = nullptr;
  std::string shell;
};

int run_completion(const CompletionArguments& arguments, Console& console) {
  std::string script = completion_script(words_of(*arguments.program), arguments.shell);
  script.pop_back();  // note() ends the line
  console.text(script);
  return 0;
}

}  // namespace

void add_schema(Commands& commands) {
  const auto [command, arguments] =
      commands.add("schema", "print the JSON schema of job files, for editors", run_schema);
  add_plug_in_options(command, arguments.plug_ins);
}

void add_completion(Commands& commands) {
  const auto [command, arguments] = commands.add(
      "completion", "print a script that lets a shell complete commands, options and keys", run_completion);
  arguments.program = &commands.program();
  command.add_option("shell", arguments.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace maestro
