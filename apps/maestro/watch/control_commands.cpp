// SPDX-License-Identifier: Apache-2.0
// `maestro status`, `show-plan`, `checkpoint`, `pause`, `continue`, `stop` and `leave`: clients of a run's control
// service.
#include "apps/maestro/commands.hpp"
#include "apps/maestro/watch/control_options.hpp"

namespace maestro {

namespace {

struct ControlArguments {
  std::string call;  ///< call of ControlClient
  RunChoice run;
  std::int32_t process = 0;  ///< process that `leave` ends
  bool json = false;
};

int run_control(const ControlArguments& arguments, Console& console) {
  return call_run(console, [&] {
    ControlClient client(service_of(arguments.run));
    const auto form = arguments.json ? ControlClient::Form::json : ControlClient::Form::text;
    const std::string answer =
        arguments.call == "leave" ? client.leave(arguments.process, form) : client.call(arguments.call, form);
    arguments.json ? console.answer(answer) : console.text(answer);
  });
}

}  // namespace

void add_control(Commands& commands) {
  struct Call {
    const char* command;
    const char* call;
    const char* purpose;
  };
  constexpr Call calls[] = {
      {"status", "status", "show the state of a run, and each wait with its cause"},
      {"show-plan", "plan", "show sections, places and edges of a run"},
      {"checkpoint", "checkpoint", "write a checkpoint of a run now"},
      {"pause", "pause", "pause a run after its announced steps"},
      {"continue", "resume", "continue a paused run"},
      {"stop", "stop", "end a run in order, as a first Ctrl-C does"},
      {"leave", "leave", "give the replicas of a process to the others, and end it"},
  };
  for (const Call& each : calls) {
    const auto [command, arguments] = commands.add(each.command, each.purpose, run_control);
    arguments.call = each.call;
    add_run_choice(command, arguments.run);
    if (arguments.call == "leave") {
      command.add_option("--process", arguments.process, "its number, as `maestro status` shows it")->required();
    }
    command.add_flag("--json", arguments.json, "print the answer as a line of JSON");
  }
}

}  // namespace maestro
