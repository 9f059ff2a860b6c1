// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

extern char** environ;

namespace maestro::testing {

ChildProcess::ChildProcess(std::vector<std::string> words) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int code = posix_spawn(&pid_, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  commands_ = fdopen(to_child[1], "w");
  answers_ = fdopen(from_child[0], "r");
  if (code == 0) return;
  std::fclose(commands_);
  std::fclose(answers_);
  throw std::runtime_error("cannot start " + words.front());
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) end();
  if (commands_ != nullptr) std::fclose(commands_);
  std::fclose(answers_);
}

void ChildProcess::send(const std::string& command) {
  std::fputs((command + "\n").c_str(), commands_);
  std::fflush(commands_);
}

std::string ChildProcess::read_line() {
  std::string line;
  for (int letter = std::fgetc(answers_); letter != EOF && letter != '\n'; letter = std::fgetc(answers_)) {
    line += static_cast<char>(letter);
  }
  return line;
}

void ChildProcess::kill_now() {
  ::kill(pid_, SIGKILL);
  (void)wait_for_exit();
}

int ChildProcess::end() {
  std::fclose(std::exchange(commands_, nullptr));
  return wait_for_exit();
}

int ChildProcess::wait_for_exit() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace maestro::testing
