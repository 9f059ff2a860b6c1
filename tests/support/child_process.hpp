// SPDX-License-Identifier: Apache-2.0
// A program that a test talks to by lines: started in the constructor, ended in the destructor.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace maestro::testing {

class ChildProcess {
 public:
  /// `words`: the program and its arguments. Throws std::runtime_error when it does not start.
  explicit ChildProcess(std::vector<std::string> words);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(const std::string& command);
  /// The next line it prints; empty when it has ended.
  [[nodiscard]] std::string read_line();
  /// SIGKILL; returns when the process is gone.
  void kill_now();
  /// Closes its standard input and waits for it. The exit status, or -1 when a signal ended it.
  int end();

 private:
  [[nodiscard]] int wait_for_exit();

  pid_t pid_ = -1;  // -1 once it has ended
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

}  // namespace maestro::testing
