// SPDX-License-Identifier: Apache-2.0
// Identity of a process beyond its number. Process numbers are reused, and each PID namespace (container) counts
// separately: sooner or later a bare number refers to another process.
//
// PI-1 (never the wrong process): a signal goes only to the process that the identity was made from: a process in the
//       same PID namespace, with the same number and start time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace maestro {

struct ProcessIdentity {
  std::uint64_t pid_namespace = 0;  ///< inode of /proc/<pid>/ns/pid; 0: unknown
  std::int64_t pid = 0;
  std::uint64_t started = 0;  ///< clock ticks after boot

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// Returns the identity of the calling process. Thread-safe.
[[nodiscard]] ProcessIdentity own_identity();
/// Returns the identity of a process in this PID namespace, for example a child; `started` is 0 if it does not exist.
[[nodiscard]] ProcessIdentity identity_of(pid_t pid);
/// Returns false for a zombie and for a process of another namespace. Without /proc a number in use counts as alive.
[[nodiscard]] bool is_alive(const ProcessIdentity& process);

/// Returns "<boot>-<pid namespace>-<pid>-<start time>", of digits and "-", for names of files.
[[nodiscard]] std::string identity_text(const ProcessIdentity& process);
/// Returns whether `text` begins with the identity of a dead process in this boot and PID namespace; false if that
/// cannot be determined.
[[nodiscard]] bool is_of_dead_process(std::string_view text);
/// Returns whether a signal has stopped a process (SIGSTOP, Ctrl-Z, a debugger); false if it does not exist.
[[nodiscard]] bool is_stopped(std::int64_t pid);

/// A pidfd: it always refers to the same process. Move-only.
class ProcessHandle {
 public:
  /// Refers to no process if the process is gone or belongs to another PID namespace (PI-1).
  explicit ProcessHandle(const ProcessIdentity& process);
  ~ProcessHandle();
  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;

  [[nodiscard]] explicit operator bool() const { return descriptor_ >= 0; }
  /// Sends SIGKILL. Returns false if the process is already gone.
  bool kill() const;
  /// Blocks until the process has ended, at most until `deadline`. Returns whether it has.
  bool wait(std::chrono::steady_clock::time_point deadline) const;

 private:
  int descriptor_ = -1;
};

}  // namespace maestro
