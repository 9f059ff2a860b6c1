// SPDX-License-Identifier: Apache-2.0
// A program that exchanges lines with a test: started in the constructor, ended in the destructor.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace maestro::testing {

class ChildProcess {
 public:
  /// `words`: the program and its arguments. Throws std::runtime_error if it does not start.
  explicit ChildProcess(std::vector<std::string> words);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(const std::string& command);
  /// Returns the next line that it prints; empty if it has ended.
  [[nodiscard]] std::string read_line();
  /// Sends SIGKILL and returns when the process has ended.
  void kill_now();
  /// Closes its standard input and waits for it. Returns the exit status, or -1 if a signal ended it.
  int end();

 private:
  [[nodiscard]] int wait_for_exit();

  pid_t pid_ = -1;  // -1 once it has ended
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

}  // namespace maestro::testing
