// SPDX-License-Identifier: Apache-2.0
// Starts the other processes of a job, on this machine or by ssh on others, and looks after them: every child is
// reaped, none outlives the job.
//
// LA-1: after the destructor no child of this launcher runs. Of a remote process the child is its ssh; the process
//       itself ends when it loses rank 0.
// LA-2: secrets go to remote processes by their standard input alone: arguments and variables can be seen by others.
// LA-3: what a remote process prints as an error comes out here, line by line, behind its host's name.
// LA-4: a child is ended by its pidfd, or by its number while it has not been waited for; never by a number that may be
//       another process's by now.
// LA-5: a remote process's standard input stays open as long as its child here runs, and ends with this process: the
//       remote process sees the end of rank 0 there (ParentWatch).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/process_identity.hpp"

namespace maestro {

/// One process to start.
struct ProcessStart {
  std::int64_t rank = 0;
  std::string host;                    ///< where to log in; empty: this machine
  std::vector<std::string> variables;  ///< "NAME=value"
};

/// How processes are started on other hosts.
struct RemoteShell {
  std::vector<std::string> words;  ///< the program and its options, as of default_remote_shell()
  std::string secrets;             ///< one line for the standard input of every remote process
};
/// ssh, never asking questions. `command` ("ssh -p 2222") replaces the first word; empty: ssh.
[[nodiscard]] std::vector<std::string> remote_shell_words(const std::string& command);

/// The line that a remote shell runs: it goes to `folder`, and becomes the program with its variables and arguments.
[[nodiscard]] std::string remote_command(const std::string& folder, const std::vector<std::string>& variables,
                                         const std::vector<std::string>& command);

/// Whether a child that ended so (Launcher::Ended) has printed its error line itself: wrong input, or refused
/// resources.
[[nodiscard]] inline bool prints_itself(std::string_view how) {
  constexpr std::string_view refused = "exit status 2";
  return how == refused || how.starts_with(std::string(refused) + " ");
}

class Launcher {
 public:
  /// Called on a thread of the launcher when a child has ended: "exit status 1", "signal 9", and of a remote shell what
  /// it said last.
  using Ended = std::function<void(ProcessId, std::string how)>;
  /// Called on a thread of the launcher when a signal has stopped a local child, and when it goes on.
  using Stopped = std::function<void(ProcessId, bool stopped)>;
  explicit Launcher(Ended ended, Stopped stopped = {}) : ended_(std::move(ended)), stopped_(std::move(stopped)) {}
  ~Launcher() { end_all(std::chrono::milliseconds(0)); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Starts this executable with `arguments` for each of `processes`. Throws JobError.
  void start(const std::vector<std::string>& arguments, const std::vector<ProcessStart>& processes,
             const RemoteShell& shell);
  /// Waits for the children to end by themselves, at most this long. Thread-safe.
  void wait(std::chrono::milliseconds patience) const;
  /// The same, then kills what is left. Safe to call again.
  void end_all(std::chrono::milliseconds patience);
  /// Kills at once; for a second Ctrl-C. Async-signal-safe enough for a signal thread.
  void kill_all();
  /// Of all children, running or not. Thread-safe.
  [[nodiscard]] std::vector<std::int64_t> pids() const;
  /// True when every child that ended so far did so with status 0.
  [[nodiscard]] bool all_clean() const;

 private:
  /// A started child. Descriptors of a remote one are this side's ends of its standard streams.
  struct Child {
    pid_t pid = 0;
    ProcessId rank;
    std::string host;
    int input = -1;
    int errors = -1;
  };
  void start_local(const std::string& program, const std::vector<std::string>& arguments, const ProcessStart& process);
  void start_remote(const std::string& program, const std::vector<std::string>& arguments, const ProcessStart& process,
                    const RemoteShell& shell);
  void started(Child child);
  void watch(const Child& child);
  int reap(const Child& child);

  Ended ended_;
  Stopped stopped_;
  mutable std::mutex mutex_;
  std::map<pid_t, ProcessHandle> running_;
  std::vector<std::int64_t> pids_;
  bool clean_ = true;
  std::vector<std::thread> watchers_;
};

}  // namespace maestro
