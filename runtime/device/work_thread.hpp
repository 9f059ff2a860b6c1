// SPDX-License-Identifier: Apache-2.0
// A device's thread: two queues, a worker.
//
// WT-1 (order): work of equal priority runs in order of submission.
// WT-2 (priority): background work starts only when no critical work waits.
// WT-3 (stop): after stop() returns no work runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/device/device.hpp"

namespace maestro {

class WorkThread {
 public:
  /// `prepare` runs first on the new thread (pinning, floating-point modes).
  explicit WorkThread(std::function<void()> prepare);
  ~WorkThread() { stop(); }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;
  void submit(Priority priority, std::function<void()> work);
  void stop();

 private:
  void run(const std::function<void()>& prepare);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> critical_;
  std::deque<std::function<void()>> background_;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace maestro
