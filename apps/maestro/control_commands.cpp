// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/control_commands.hpp"

#include <algorithm>

#include "runtime/core/result.hpp"

namespace maestro {

ControlCommands::ControlCommands(CLI::App& app) {
  const std::pair<const char*, const char*> calls[] = {
      {"status", "show the state of a run, and each wait with its cause"},
      {"plan", "show sections, places and edges of a run"},
      {"checkpoint", "write a checkpoint of a run now"},
      {"pause", "pause a run after its announced steps"},
      {"resume", "continue a paused run"},
      {"stop", "end a run in order, as a first Ctrl-C does"},
      {"leave", "give the replicas of a process to the others, and end it"},
  };
  for (const auto& [name, purpose] : calls) {
    Command& command = commands_.emplace_back();
    command.name = name;
    command.app = app.add_subcommand(name, purpose);
    command.app->add_option("--at", command.target.address,
                            "unix:/PATH or HOST:PORT (default: the one run of this user on this host)");
    command.app->add_option("--keys", command.target.keys, "key folder, for a run on another host");
    command.app->add_option("--token-file", command.target.token_file, "file with the run's token");
    if (command.name == "leave") {
      command.app->add_option("--process", command.process, "its number, as `maestro status` shows it")->required();
    }
    command.app->add_flag("--json", command.json, "print the answer as a line of JSON");
  }
}

bool ControlCommands::given() const {
  return std::ranges::any_of(commands_, [](const Command& command) { return command.app->parsed(); });
}

int ControlCommands::run(Console& console) const {
  const auto command = std::ranges::find_if(commands_, [](const Command& each) { return each.app->parsed(); });
  try {
    ControlClient client(command->target);
    const auto form = command->json ? ControlClient::Form::json : ControlClient::Form::text;
    const std::string answer =
        command->name == "leave" ? client.leave(command->process, form) : client.call(command->name, form);
    command->json ? console.answer(answer) : console.text(answer);
    return 0;
  } catch (const JobError& error) {
    if (error.code() == ErrorCode::invalid_argument) throw;
    console.error(error.what());
    return 1;
  }
}

}  // namespace maestro
