// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/schema_command.hpp"

#include <nlohmann/json.hpp>

#include "apps/maestro/job_schema.hpp"
#include "apps/maestro/plug_in_option.hpp"
#include "apps/maestro/shell_completion.hpp"

namespace maestro {

namespace {

/// Returns the words of a program, hidden options left out.
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

}  // namespace

SchemaCommand::SchemaCommand(CLI::App& app)
    : command_(app.add_subcommand("schema", "print the JSON schema of job files, for editors")) {
  add_plug_in_options(*command_, plug_ins_);
}

int SchemaCommand::run(Console& console) const {
  console.answer(job_schema(JobReference(types_with(plug_ins_.files).sections)).dump(1));
  return 0;
}

CompletionCommand::CompletionCommand(CLI::App& app)
    : program_(app),
      command_(
          app.add_subcommand("completion", "print a script by which a shell completes commands, options and keys")) {
  command_->add_option("shell", shell_, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

int CompletionCommand::run(Console& console) const {
  std::string script = completion_script(words_of(program_), shell_);
  script.pop_back();  // note() ends the line
  console.text(script);
  return 0;
}

}  // namespace maestro
