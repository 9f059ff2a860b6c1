// SPDX-License-Identifier: Apache-2.0
// Starts the other processes of a job, on this machine or by ssh on others, and supervises them: it reaps every child,
// and no child outlives the job.
//
// LA-1 (no orphans): after the destructor no child of this launcher runs. The child of a remote process is its ssh; the
//       process itself ends when it loses rank 0.
// LA-2 (secrets by pipe): remote processes receive secrets only on their standard input, because other users can read
//       arguments and variables.
// LA-3 (remote errors): the standard error of a remote process is passed on line by line, with its host.
//
// A child is killed by its pidfd, or by its pid before it is waited for; never by a pid that the system may have
// reused. A remote process' standard input stays open while its child here runs, and closes with this process: the
// remote process detects the end of rank 0 by it (ParentWatch).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/process_identity.hpp"

namespace maestro {

/// A process to start.
struct ProcessStart {
  std::int64_t rank = 0;
  std::string host;                    ///< remote host; empty: this machine
  std::vector<std::string> variables;  ///< "NAME=value"
};

/// Command and secrets for starting processes on other hosts.
struct RemoteShell {
  std::vector<std::string> words;  ///< program and options, from remote_shell_words()
  std::string secrets;             ///< line for the standard input of every remote process
};
/// Returns ssh in batch mode. `command` ("ssh -p 2222") replaces the first word; empty: ssh.
[[nodiscard]] std::vector<std::string> remote_shell_words(const std::string& command);

/// Returns the line that a remote shell runs: changes to `folder`, then executes the program with variables and
/// arguments.
[[nodiscard]] std::string remote_command(const std::string& folder, const std::vector<std::string>& variables,
                                         const std::vector<std::string>& command);

/// Returns whether a child that ended this way (Launcher::Ended) has printed its error line itself: invalid input, or
/// refused resources.
[[nodiscard]] inline bool prints_itself(std::string_view how) {
  constexpr std::string_view refused = "exit status 2";
  return how == refused || how.starts_with(std::string(refused) + " ");
}

/// Returns the path of this executable. Throws JobError.
[[nodiscard]] std::string own_program();

class Launcher {
 public:
  /// Called on a thread of the launcher when a child has ended: "exit status 1", "signal 9"; for a remote shell also
  /// its last line of output.
  using Ended = std::function<void(ProcessId, std::string how)>;
  /// Called on a thread of the launcher when a signal has stopped a local child, and when the child continues.
  using Stopped = std::function<void(ProcessId, bool stopped)>;
  /// Called on a thread of the launcher with each line of a remote shell's standard error; prints it. Returns its text
  /// for `Ended`.
  using Line = std::function<std::string(const std::string& host, const std::string& line)>;
  explicit Launcher(Ended ended, Stopped stopped = {}, Line line = {})
      : ended_(std::move(ended)), stopped_(std::move(stopped)), line_(std::move(line)) {}
  ~Launcher() { end_all(std::chrono::milliseconds(0)); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Starts this executable with `arguments` for each of `processes`. Throws JobError.
  void start(const std::vector<std::string>& arguments, const std::vector<ProcessStart>& processes,
             const RemoteShell& shell);
  /// Waits for the children to end, at most this long. Thread-safe.
  void wait(std::chrono::milliseconds patience) const;
  /// Waits for the children to end, at most this long, then kills the remaining children. Idempotent.
  void end_all(std::chrono::milliseconds patience);
  /// Waits for the children outside `kept` to end, at most this long, then kills the remaining ones. Ignores how they
  /// ended.
  void end_others(const std::set<ProcessId>& kept, std::chrono::milliseconds patience);
  /// Kills all children at once, for a second Ctrl-C. Callable from a signal thread.
  void kill_all();
  /// Returns the pids of all children, running or not. Thread-safe.
  [[nodiscard]] std::vector<std::int64_t> pids() const;
  /// Returns the pids of ended children. Thread-safe.
  [[nodiscard]] std::vector<std::int64_t> ended_pids() const;
  /// Returns the child processes that have not ended. Thread-safe.
  [[nodiscard]] std::set<ProcessId> running() const;
  /// Excludes a process from all_clean(), because the run continues without it. Thread-safe.
  void forgive(ProcessId process);
  [[nodiscard]] bool is_forgiven(ProcessId process) const;
  /// Counts a process in all_clean() again: it was started again and takes part in the run. Thread-safe.
  void rely_on(ProcessId process);
  /// Waits until a child has ended and its end is reported; kills the child after `patience`. Thread-safe.
  void end(ProcessId process, std::chrono::milliseconds patience);
  /// Kills children that all_clean() does not count. Thread-safe.
  void kill_forgiven();
  /// Returns whether every ended child that counts had status 0.
  [[nodiscard]] bool all_clean() const;

 private:
  /// A started child. A remote child's descriptors are this side's ends of its standard streams.
  struct Child {
    pid_t pid = 0;
    ProcessId process;
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
  [[nodiscard]] std::string relay(const Child& child) const;

  Ended ended_;
  Stopped stopped_;
  Line line_;
  mutable std::mutex mutex_;                     // guards the members below except watchers_
  mutable std::condition_variable child_ended_;  // a child has left running_ or processes_
  std::map<pid_t, ProcessHandle> running_;
  std::map<pid_t, ProcessId> processes_;  // children without a reported end
  std::vector<std::int64_t> pids_;
  std::set<ProcessId> unclean_;
  std::set<ProcessId> forgiven_;
  std::vector<std::thread> watchers_;
};

}  // namespace maestro
