// SPDX-License-Identifier: Apache-2.0
// The thread that starts processes of a running job, one after the other.
//
// It exists from the first start on. Its owner queues starts and never waits for one; the destructor waits for the
// current start and drops those that are queued.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace maestro {

/// Thread-safe, but for stop().
class StartThread {
 public:
  using Start = std::function<void()>;
  ~StartThread() { stop(); }

  /// Queues a start, which must not throw. Without effect after close(). Throws std::system_error: no thread.
  void add(Start start);
  /// Drops the queued starts; no further one begins. Returns whether there is a thread.
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
