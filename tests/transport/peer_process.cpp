#include "tests/transport/peer_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "transport/shared_memory_sweep.hpp"

extern char** environ;

namespace maestro::testing {

PeerProcess::PeerProcess(const std::string& provider, std::size_t bytes) {
  int to_peer[2];
  int from_peer[2];
  if (pipe2(to_peer, O_CLOEXEC) != 0 || pipe2(from_peer, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_peer[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_peer[1], STDOUT_FILENO);
  std::vector<std::string> words{TRANSFER_PEER, provider, std::to_string(bytes)};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int code = posix_spawn(&pid_, TRANSFER_PEER, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_peer[0]);
  close(from_peer[1]);
  commands_ = fdopen(to_peer[1], "w");
  answers_ = fdopen(from_peer[0], "r");
  if (code != 0) throw std::runtime_error(std::string("cannot start ") + TRANSFER_PEER);
  std::istringstream line(read_line());
  if (!(line >> target_)) throw std::runtime_error("transfer_peer did not introduce itself");
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) end();
  (void)sweep_shared_memory();  // a test of its own checks the sweep
  if (commands_ != nullptr) std::fclose(commands_);
  std::fclose(answers_);
}

void PeerProcess::send(const std::string& command) {
  std::fputs((command + "\n").c_str(), commands_);
  std::fflush(commands_);
}

std::string PeerProcess::read_line() {
  std::string line;
  for (int letter = std::fgetc(answers_); letter != EOF && letter != '\n'; letter = std::fgetc(answers_)) {
    line += static_cast<char>(letter);
  }
  return line;
}

void PeerProcess::kill_now() {
  ::kill(pid_, SIGKILL);
  (void)wait_for_exit();
}

int PeerProcess::end() {
  std::fclose(std::exchange(commands_, nullptr));
  return wait_for_exit();
}

int PeerProcess::wait_for_exit() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace maestro::testing
