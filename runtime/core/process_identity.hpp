// SPDX-License-Identifier: Apache-2.0
// Identity of a process beyond its number. Process numbers are reused, and each PID namespace (container) counts its
// own: sooner or later a bare number refers to another process.
//
// PI-1 (never the wrong process): a signal goes only to the process that the identity was made of: a process of the
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
/// Returns the identity of a process of this PID namespace, a child for example; `started` is 0 if there is none.
[[nodiscard]] ProcessIdentity identity_of(pid_t pid);
/// Returns false for a zombie and for a process of another namespace. Without /proc a number in use counts as alive.
[[nodiscard]] bool is_alive(const ProcessIdentity& process);

/// Returns "<boot>-<pid namespace>-<pid>-<start time>", of digits and "-", for names of files.
[[nodiscard]] std::string identity_text(const ProcessIdentity& process);
/// Returns whether `text` begins with the identity of a process of this boot and this PID namespace that is dead; false
/// if that cannot be determined.
[[nodiscard]] bool is_of_dead_process(std::string_view text);
/// Returns whether a signal has stopped it (SIGSTOP, Ctrl-Z, a debugger); false if there is no such process.
[[nodiscard]] bool is_stopped(std::int64_t pid);

/// A pidfd: it refers to the same process for ever. Move-only.
class ProcessHandle {
 public:
  /// Refers to no process if that process is gone or belongs to another PID namespace (PI-1).
  explicit ProcessHandle(const ProcessIdentity& process);
  ~ProcessHandle();
  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;

  [[nodiscard]] explicit operator bool() const { return descriptor_ >= 0; }
  /// Sends SIGKILL. Returns false when the process is gone already.
  bool kill() const;
  /// Blocks until the process has ended, at most until `deadline`. Returns whether it has.
  bool wait(std::chrono::steady_clock::time_point deadline) const;

 private:
  int descriptor_ = -1;
};

}  // namespace maestro
