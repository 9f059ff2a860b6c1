// SPDX-License-Identifier: Apache-2.0
// Watches rank 0 for a process that rank 0 has started, until the job has begun; afterwards the supervisors watch each
// other.
//
// RW-1 (bounded notice): `lost` is called once, within half a second after rank 0 has ended, or after rank 0 was
//       stopped for `silence`.
// RW-2 (quiet end): after the destructor `lost` is not called; the destructor waits for a running call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "runtime/files/posix_file.hpp"

namespace maestro {

class ParentWatch {
 public:
  /// Reports the loss of rank 0. `how`: "ended" or "is stopped". Called on the watch's thread.
  using Lost = std::function<void(const std::string& how)>;

  /// `pid`: pid of rank 0, this process' parent; 0: rank 0 is on another host and holds the other end of `input`.
  /// Throws JobError if no descriptor or thread is available.
  ParentWatch(std::int64_t pid, int input, Lost lost);
  ~ParentWatch();
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

  void set_silence(std::chrono::milliseconds silence) { silence_ = silence.count(); }

 private:
  void watch();
  [[nodiscard]] bool has_ended(short events) const;

  std::int64_t pid_;
  Lost lost_;
  std::atomic<std::int64_t> silence_{10000};  // ms
  FileDescriptor process_;                    // pidfd of rank 0
  int input_;
  FileDescriptor wake_;
  std::thread thread_;  // last: uses all above
};

}  // namespace maestro
