// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/join_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "actors/launch/launcher.hpp"
#include "apps/maestro/run_options.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

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

}  // namespace

JoinCommand::JoinCommand(CLI::App& app)
    : app_(
          app.add_subcommand("join", "take replicas of a running job over in a new process, until Ctrl-C or its end")) {
  app_->add_option("--section", section_, "a frozen section with replicas = {least, most}")->required();
  app_->add_option("--devices", devices_, "cpu:K,cpu:L for a replica (default: the least used cores)");
  app_->add_option("--at", target_.address, "unix:/PATH or HOST:PORT (default: the one run of this user on this host)");
  app_->add_option("--keys", target_.keys, "key folder, for a run on another host");
  app_->add_option("--token-file", target_.token_file, "file with the run's token");
  add_log_format(*app_, log_format_);
}

int JoinCommand::run(Console& console) const {
  try {
    execute(ControlClient(target_).join(section_, devices_), log_arguments(log_format_));
  } catch (const JobError& error) {
    if (error.code() == ErrorCode::invalid_argument) throw;
    console.error(error.what());
    return 1;
  }
}

}  // namespace maestro
