// SPDX-License-Identifier: Apache-2.0
// `maestro join`: this process becomes part of a running job and takes replicas of a section over.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "actors/launch/launcher.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "apps/maestro/watch/control_options.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

struct JoinArguments {
  RunChoice run;
  std::string section;
  std::string devices;
  std::string log_format;
};

/// Returns only by throwing JobError.
[[noreturn]] void execute(const JoinTerms& terms, const std::vector<std::string>& log) {
  const std::string program = own_program();
  std::error_code problem;
  std::filesystem::current_path(terms.folder, problem);
  if (problem) {
    throw JobError("the folder of the run, \"" + terms.folder + "\", is not here: " + problem.message(),
                   ErrorCode::unavailable);
  }
  for (const std::string& variable : terms.variables) {
    const std::size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  std::vector<std::string> words = terms.command;
  const std::vector<std::string> of_rank_0 = log_arguments("json");
  const auto found = std::search(words.begin(), words.end(), of_rank_0.begin(), of_rank_0.end());
  if (found != words.end()) words.erase(found, found + std::ssize(of_rank_0));
  words.insert(words.end(), log.begin(), log.end());
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw JobError("cannot execute " + program + ": " + std::strerror(errno), ErrorCode::unavailable);
}

int run_join(const JoinArguments& arguments, Console& console) {
  return call_run(console, [&] {
    execute(ControlClient(service_of(arguments.run)).join(arguments.section, arguments.devices),
            log_arguments(arguments.log_format));
  });
}

}  // namespace

void add_join(Commands& commands) {
  const auto [command, arguments] = commands.add(
      "join", "take over replicas of a running job in a new process, until Ctrl-C or the job's end", run_join);
  command.add_option("--section", arguments.section, "a frozen section with replicas = {least, most}")->required();
  command.add_option("--devices", arguments.devices, "cpu:K,cpu:L for a replica (default: the least used cores)");
  add_run_choice(command, arguments.run);
  add_log_format(command, arguments.log_format);
}

}  // namespace maestro
