// SPDX-License-Identifier: Apache-2.0
// Two processes made for one measurement.
#pragma once

#include <functional>
#include <string>

namespace maestro::bench {

/// One end of a connection between the two. Throws JobError when the other end is gone.
class Channel {
 public:
  explicit Channel(int file) : file_(file) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  void send(const std::string& bytes) const;
  [[nodiscard]] std::string receive() const;

 private:
  int file_;
};

/// Runs each function in a process of its own, and returns what `first` returns. They start as copies of this process,
/// which must have no other threads. Throws JobError with the message of the one that failed, after ending both.
std::string run_in_two_processes(const std::function<std::string(const Channel&)>& first,
                                 const std::function<void(const Channel&)>& second);

}  // namespace maestro::bench
