// SPDX-License-Identifier: Apache-2.0
// Two processes made for a measurement.
#pragma once

#include <functional>
#include <string>

namespace maestro::bench {

/// An end of a connection between the two. Throws JobError when the other end is closed.
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
/// which must have no other threads. Throws JobError with the message of the failed process, after ending both.
std::string run_in_two_processes(const std::function<std::string(const Connection&)>& first,
                                 const std::function<void(const Connection&)>& second);

}  // namespace maestro::bench
