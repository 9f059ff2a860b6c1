// SPDX-License-Identifier: Apache-2.0
// The thread that polls for completions (completion_queue.hpp); all devices of a process share it.
//
// QP-1 (growing pauses): the thread sleeps while nothing is outstanding, polls without a pause shortly after an event,
//       and then with growing pauses of at most `longest_pause`.
// QP-2 (drain): stop() returns when all completions that were added are delivered. Nothing is added after it.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device/completion_queue.hpp"

namespace maestro {

/// Returns the pause before the next poll (QP-1). Pure.
class PollPace {
 public:
  using Microseconds = std::chrono::microseconds;
  static constexpr int eager_rounds = 200;
  static constexpr Microseconds longest_pause{50};
  /// Returns the pause after a round that `found` something, or nothing.
  [[nodiscard]] Microseconds next(bool found) {
    if (found) rounds_ = 0;
    if (rounds_ < eager_rounds) return ++rounds_, pause_ = Microseconds(0);
    return pause_ = std::clamp(pause_ * 2, Microseconds(1), longest_pause);
  }

 private:
  int rounds_ = 0;
  Microseconds pause_{0};
};

/// `StateOf`: (const Event&) -> EventState, called on the poller's thread. add() is thread-safe.
template <class Event, class StateOf>
class CompletionPoller {
 public:
  explicit CompletionPoller(StateOf state_of = {}) : state_of_(std::move(state_of)), thread_([this] { run(); }) {}
  ~CompletionPoller() { stop(); }
  CompletionPoller(const CompletionPoller&) = delete;
  CompletionPoller& operator=(const CompletionPoller&) = delete;

  /// Returns the number of a new stream, for the order of CQ-1 (stream order).
  [[nodiscard]] StreamNumber new_stream() {
    const std::lock_guard lock(mutex_);
    return ++streams_;
  }
  void add(StreamNumber stream, Event event, Completion done) {
    {
      const std::lock_guard lock(mutex_);
      inbox_.push_back({stream, std::move(event), std::move(done)});
    }
    wake_.notify_one();
  }
  /// Stops the thread. Idempotent; not called from within a completion.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Added {
    StreamNumber stream;
    Event event;
    Completion done;
  };

  void run() {
    constexpr unsigned long slack_ns = 1000;  // else a pause of a microsecond takes fifty (prctl(2), PR_SET_TIMERSLACK)
    static_cast<void>(prctl(PR_SET_TIMERSLACK, slack_ns));
    CompletionQueue<Event> queue;
    PollPace pace;
    bool found = true;
    while (take(queue, pace.next(found))) {
      found = queue.poll(state_of_) > 0;
      if (queue.empty()) found = true;  // the next completion is polled for eagerly again
    }
  }

  /// Moves the added completions into `queue`, after `pause` or sooner. Returns false at the end.
  bool take(CompletionQueue<Event>& queue, PollPace::Microseconds pause) {
    std::vector<Added> added;
    {
      std::unique_lock lock(mutex_);
      const auto wanted = [this] { return stopping_ || !inbox_.empty(); };
      if (queue.empty()) {
        wake_.wait(lock, wanted);
      } else if (pause.count() > 0 && !stopping_) {
        wake_.wait_for(lock, pause, wanted);
      }
      added.swap(inbox_);
      if (stopping_ && added.empty() && queue.empty()) return false;
    }
    for (Added& each : added) queue.add(each.stream, std::move(each.event), std::move(each.done));
    return true;
  }

  StateOf state_of_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Added> inbox_;
  StreamNumber streams_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace maestro
