// Starts the other processes of a job on this machine and looks after them: every child is reaped, none outlives the
// job.
//
// LA-1: after the destructor no child of this launcher runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

/// What a child finds in its environment.
struct ChildEnvironment {
  std::int64_t rank = 0;
  std::int64_t processes = 1;
  std::string root_host;
  std::uint16_t root_port = 0;
};
/// The environment of this process when a launcher started it; rank 0 otherwise.
[[nodiscard]] ChildEnvironment child_environment();

class Launcher {
 public:
  /// Called on the launcher's thread when a child has ended.
  using Ended = std::function<void(ProcessRank, std::string how)>;
  explicit Launcher(Ended ended) : ended_(std::move(ended)) {}
  ~Launcher() { end_all(std::chrono::milliseconds(0)); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Starts ranks 1 .. processes - 1 of this executable with `arguments`. Throws JobError.
  void start(const std::vector<std::string>& arguments, const ChildEnvironment& environment);
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
  void watch(pid_t pid, ProcessRank rank);

  Ended ended_;
  mutable std::mutex mutex_;
  std::map<pid_t, bool> running_;  // pid -> still running
  bool clean_ = true;
  std::vector<std::thread> watchers_;
};

}  // namespace maestro
