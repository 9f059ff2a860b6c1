// SPDX-License-Identifier: Apache-2.0
// The thread that starts processes of a running job, one at a time.
//
// It exists from the first start on. Its owner queues starts without waiting; the destructor waits for the current
// start and drops the queued starts.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace maestro {

/// Thread-safe, except stop().
class StartThread {
 public:
  using Start = std::function<void()>;
  ~StartThread() { stop(); }

  /// Queues a start, which must not throw. Without effect after close(). Throws std::system_error if the thread cannot
  /// be started.
  void add(Start start);
  /// Drops the queued starts and refuses further ones. Returns whether the thread exists.
  bool close();
  /// Closes, and waits for the current start.
  void stop();

 private:
  void run();

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Start> starts_;
  bool closed_ = false;
  std::jthread thread_;
};

}  // namespace maestro
