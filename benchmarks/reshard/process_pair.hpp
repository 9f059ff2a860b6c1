// SPDX-License-Identifier: Apache-2.0
// Two processes for a measurement.
#pragma once

#include <functional>
#include <string>

namespace maestro::bench {

/// An end of a connection between the two processes. Throws JobError if the other end is closed.
class Connection {
 public:
  explicit Connection(int file) : file_(file) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  void send(const std::string& bytes) const;
  [[nodiscard]] std::string receive() const;

 private:
  int file_;
};

/// Runs each function in a separate process, and returns the result of `first`. They start as copies of this process,
/// which must be single-threaded. If a process fails, ends both and throws JobError with its message.
std::string run_in_two_processes(const std::function<std::string(const Connection&)>& first,
                                 const std::function<void(const Connection&)>& second);

}  // namespace maestro::bench
