#include "actors/launcher.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "runtime/core/result.hpp"

extern char** environ;

namespace maestro {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::vector<std::string> environment_of(const ChildEnvironment& child) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  variables.push_back("MAESTRO_RANK=" + std::to_string(child.rank));
  variables.push_back("MAESTRO_PROCESSES=" + std::to_string(child.processes));
  variables.push_back("MAESTRO_ROOT_HOST=" + child.root_host);
  variables.push_back("MAESTRO_ROOT_PORT=" + std::to_string(child.root_port));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

ChildEnvironment child_environment() {
  ChildEnvironment environment;
  const std::string rank = variable("MAESTRO_RANK");
  if (rank.empty()) return environment;
  try {
    environment.rank = std::stoll(rank);
    environment.processes = std::stoll(variable("MAESTRO_PROCESSES"));
    environment.root_host = variable("MAESTRO_ROOT_HOST");
    environment.root_port = static_cast<std::uint16_t>(std::stoul(variable("MAESTRO_ROOT_PORT")));
  } catch (const std::exception&) {
    throw JobError(
        "MAESTRO_RANK is set, but MAESTRO_PROCESSES or MAESTRO_ROOT_PORT is not a number; these are set by "
        "`maestro train --processes N` and not meant to be set by hand");
  }
  return environment;
}

void Launcher::start(const std::vector<std::string>& arguments, const ChildEnvironment& environment) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) throw JobError("cannot find this program's own file: " + std::string(std::strerror(errno)));
  std::vector<std::string> command(1, std::string(self, static_cast<std::size_t>(length)));
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string path = command.front();
  for (std::int64_t rank = 1; rank < environment.processes; ++rank) {
    ChildEnvironment child = environment;
    child.rank = rank;
    std::vector<std::string> variables = environment_of(child);
    std::vector<char*> argv = pointers(command);
    std::vector<char*> envp = pointers(variables);
    pid_t pid = 0;
    const int refused = posix_spawn(&pid, path.c_str(), nullptr, nullptr, argv.data(), envp.data());
    if (refused != 0) {
      throw JobError("cannot start process " + std::to_string(rank) + ": " + std::strerror(refused),
                     ErrorCode::unavailable);
    }
    {
      const std::lock_guard lock(mutex_);
      running_[pid] = true;
    }
    watchers_.emplace_back([this, pid, rank] { watch(pid, ProcessRank(static_cast<std::uint32_t>(rank))); });
  }
}

void Launcher::watch(pid_t pid, ProcessRank rank) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                              : "exit status " + std::to_string(WEXITSTATUS(status));
  {
    const std::lock_guard lock(mutex_);
    running_[pid] = false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) clean_ = false;
  }
  if (ended_) ended_(rank, how);
}

void Launcher::wait(std::chrono::milliseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto any_running = [this] {
    const std::lock_guard lock(mutex_);
    for (const auto& [pid, running] : running_) {
      if (running) return true;
    }
    return false;
  };
  while (any_running() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // children report through waitpid, which has no timeout
  }
}

void Launcher::end_all(std::chrono::milliseconds patience) {
  wait(patience);
  kill_all();
  for (std::thread& watcher : watchers_) watcher.join();
  watchers_.clear();
}

void Launcher::kill_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [pid, running] : running_) {
    if (running) kill(pid, SIGKILL);
  }
}

std::vector<std::int64_t> Launcher::pids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> all;
  for (const auto& [pid, running] : running_) all.push_back(pid);
  return all;
}

bool Launcher::all_clean() const {
  const std::lock_guard lock(mutex_);
  return clean_;
}

}  // namespace maestro
