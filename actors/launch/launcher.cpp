// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/launcher.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <system_error>

#include "runtime/core/result.hpp"

extern char** environ;

namespace maestro {

namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Quotes a word of any characters for a shell.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw JobError(std::string("cannot make a pipe: ") + std::strerror(errno), ErrorCode::unavailable);
    }
  }
  int ends[2] = {-1, -1};
};

/// Suppresses SIGPIPE during its lifetime: writing to a pipe without a reader only returns an error. A remote shell may
/// fail before it reads anything, and programs that use Launcher need not ignore the signal.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec at_once{};
    if (!sigismember(&before_, SIGPIPE)) sigtimedwait(&pipe_, nullptr, &at_once);  // the writing thread receives it
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

void write_all(int descriptor, const std::string& text) {
  const NoPipeSignal quiet;
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t some = write(descriptor, text.data() + written, text.size() - written);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return;  // the shell has ended; its exit status reports why
    written += static_cast<std::size_t>(some);
  }
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

std::string own_program() {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) throw JobError("cannot find the file of this program: " + std::string(std::strerror(errno)));
  return {self, static_cast<std::size_t>(length)};
}

std::vector<std::string> remote_shell_words(const std::string& command) {
  std::istringstream stream(command.empty() ? "ssh" : command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::string name = std::filesystem::path(words.at(0)).filename().string();
  if (name == "ssh") words.insert(words.end(), {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"});
  return words;
}

std::string remote_command(const std::string& folder, const std::vector<std::string>& variables,
                           const std::vector<std::string>& command) {
  std::string line = "cd " + shell_word(folder) + " && exec env";
  for (const std::string& variable : variables) line += " " + shell_word(variable);
  for (const std::string& word : command) line += " " + shell_word(word);
  return line;
}

void Launcher::start(const std::vector<std::string>& arguments, const std::vector<ProcessStart>& processes,
                     const RemoteShell& shell) {
  const std::string program = own_program();
  for (const ProcessStart& process : processes) {
    if (process.host.empty()) {
      start_local(program, arguments, process);
    } else {
      start_remote(program, arguments, process, shell);
    }
  }
}

void Launcher::start_local(const std::string& program, const std::vector<std::string>& arguments,
                           const ProcessStart& process) {
  std::vector<std::string> command(1, program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  variables.insert(variables.end(), process.variables.begin(), process.variables.end());
  std::vector<char*> argv = pointers(command);
  std::vector<char*> envp = pointers(variables);
  pid_t pid = 0;
  const int refused = posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv.data(), envp.data());
  if (refused != 0) {
    throw JobError("cannot start process " + std::to_string(process.rank) + ": " + std::strerror(refused),
                   ErrorCode::unavailable);
  }
  started({pid, ProcessId(static_cast<std::uint32_t>(process.rank)), {}, -1, -1});
}

void Launcher::start_remote(const std::string& program, const std::vector<std::string>& arguments,
                            const ProcessStart& process, const RemoteShell& shell) {
  std::vector<std::string> remote(1, program);
  remote.insert(remote.end(), arguments.begin(), arguments.end());
  std::vector<std::string> command = shell.words;
  command.push_back(process.host);
  command.push_back(remote_command(std::filesystem::current_path().string(), process.variables, remote));

  const Pipe input;
  const Pipe errors;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // A separate process group: Ctrl-C signals only rank 0, which ends the others in order.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv = pointers(command);
  pid_t pid = 0;
  const int refused = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(input.ends[0]);
  close(errors.ends[1]);
  if (refused == 0) write_all(input.ends[1], shell.secrets + "\n");
  if (refused != 0) {
    close(input.ends[1]);
    close(errors.ends[0]);
    throw JobError("cannot start process " + std::to_string(process.rank) + " on host " + process.host + " by '" +
                       shell.words.front() + "': " + std::strerror(refused) +
                       "; install it (openssh-client), or name another remote shell with --ssh",
                   ErrorCode::unavailable);
  }
  started({pid, ProcessId(static_cast<std::uint32_t>(process.rank)), process.host, input.ends[1], errors.ends[0]});
}

void Launcher::started(Child child) {
  {
    const std::lock_guard lock(mutex_);
    running_.emplace(child.pid, ProcessHandle(identity_of(child.pid)));
    processes_[child.pid] = child.process;
    pids_.push_back(child.pid);
  }
  try {
    watchers_.emplace_back([this, child] { watch(child); });
  } catch (const std::system_error& problem) {
    kill(child.pid, SIGKILL);
    (void)reap(child);
    const std::lock_guard lock(mutex_);
    processes_.erase(child.pid);
    child_ended_.notify_all();
    throw JobError("cannot watch process " + std::to_string(child.process.value()) + ": no thread: " + problem.what(),
                   ErrorCode::unavailable);
  }
}

/// Waits for a child to end and returns its status. Its pid is not reused before it has left `running_`.
int Launcher::reap(const Child& child) {
  const auto id = static_cast<id_t>(child.pid);
  siginfo_t change{};
  while (true) {
    if (waitid(P_PID, id, &change, WEXITED | WSTOPPED | WCONTINUED | WNOWAIT) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    const bool stopped = change.si_code == CLD_STOPPED;
    if (!stopped && change.si_code != CLD_CONTINUED) break;
    (void)waitid(P_PID, id, &change, (stopped ? WSTOPPED : WCONTINUED) | WNOHANG);  // consumes the change
    if (stopped_) stopped_(child.process, stopped);
  }
  {
    const std::lock_guard lock(mutex_);
    running_.erase(child.pid);
  }
  child_ended_.notify_all();
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// Passes on each line of a child's standard error until it ends. Returns the last line's text.
std::string Launcher::relay(const Child& child) const {
  FILE* stream = fdopen(child.errors, "r");
  std::string last;
  char* line = nullptr;
  std::size_t room = 0;
  ssize_t length = 0;
  while ((length = getline(&line, &room, stream)) >= 0) {
    std::string text(line, static_cast<std::size_t>(length));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty()) continue;
    last = line_ ? line_(child.host, text) : text;
  }
  std::free(line);
  std::fclose(stream);
  return last;
}

void Launcher::watch(const Child& child) {
  const std::string said = child.errors < 0 ? std::string() : relay(child);
  const int status = reap(child);
  if (child.input >= 0) close(child.input);
  std::string how = how_it_ended(status);
  if (!said.empty() && status != 0) how += " (" + said + ")";
  {
    const std::lock_guard lock(mutex_);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) unclean_.insert(child.process);
  }
  if (ended_) ended_(child.process, how);
  const std::lock_guard lock(mutex_);
  processes_.erase(child.pid);
  child_ended_.notify_all();
}

void Launcher::wait(std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  child_ended_.wait_for(lock, patience, [this] { return running_.empty(); });
}

void Launcher::end_all(std::chrono::milliseconds patience) {
  wait(patience);
  kill_all();
  for (std::thread& watcher : watchers_) watcher.join();
  watchers_.clear();
}

void Launcher::end_others(const std::set<ProcessId>& kept, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const ProcessId process : running()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (!kept.contains(process)) end(process, left);
  }
  const std::lock_guard lock(mutex_);
  unclean_.clear();
  forgiven_.clear();
}

void Launcher::kill_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [pid, child] : running_) {
    if (!child.kill()) kill(pid, SIGKILL);
  }
}

std::vector<std::int64_t> Launcher::pids() const {
  const std::lock_guard lock(mutex_);
  return pids_;
}

std::vector<std::int64_t> Launcher::ended_pids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> ended;
  std::ranges::copy_if(pids_, std::back_inserter(ended),
                       [this](std::int64_t pid) { return !running_.contains(static_cast<pid_t>(pid)); });
  return ended;
}

std::set<ProcessId> Launcher::running() const {
  const std::lock_guard lock(mutex_);
  std::set<ProcessId> running;
  for (const auto& [pid, process] : processes_) running.insert(process);
  return running;
}

void Launcher::forgive(ProcessId process) {
  const std::lock_guard lock(mutex_);
  forgiven_.insert(process);
}

void Launcher::rely_on(ProcessId process) {
  const std::lock_guard lock(mutex_);
  forgiven_.erase(process);
  unclean_.erase(process);
}

void Launcher::end(ProcessId process, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto is_reported = [this, process] {
    return std::ranges::none_of(processes_, [process](const auto& child) { return child.second == process; });
  };
  if (child_ended_.wait_for(lock, patience, is_reported)) return;
  for (const auto& [pid, child] : processes_) {
    const auto running = running_.find(pid);
    if (child == process && running != running_.end()) running->second.kill();
  }
  child_ended_.wait(lock, is_reported);
}

void Launcher::kill_forgiven() {
  const std::lock_guard lock(mutex_);
  for (const auto& [pid, process] : processes_) {
    const auto running = running_.find(pid);
    if (running != running_.end() && forgiven_.contains(process)) running->second.kill();
  }
}

bool Launcher::is_forgiven(ProcessId process) const {
  const std::lock_guard lock(mutex_);
  return forgiven_.contains(process);
}

bool Launcher::all_clean() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(unclean_, [this](ProcessId process) { return forgiven_.contains(process); });
}

}  // namespace maestro
