// SPDX-License-Identifier: Apache-2.0
// A process's thread that ends a hanging run, whatever the cause.
//
// WD-1 (bounded phases): a phase that exceeds its limit causes a single call of `expired`, which ends the process.
// WD-2 (progress): while progress is watched, a stalled run causes a single call of `stalled` (StallJudge).
//
// Only time counts during which this process ran (RunClock).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/run/watch/stall_judge.hpp"

namespace maestro {

/// Thread-safe. Callbacks run on the watchdog's thread, without a lock held.
class Watchdog {
 public:
  using Line = std::function<void(const std::string& line)>;
  /// Throws JobError, `unavailable`: no thread available.
  explicit Watchdog(Line expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Begins a phase, such as "closing the network", and ends the previous one.
  void limit(std::string phase, std::chrono::milliseconds most);
  void no_limit() { limit({}, std::chrono::milliseconds(0)); }
  /// Names the part that begins now, such as "ending the actors", for the line that `expired` receives.
  void part(std::string part);

  struct Progress {
    const std::atomic<std::uint64_t>* events = nullptr;  ///< incremented by every event of the run
    std::chrono::milliseconds limit{10000};
    std::chrono::milliseconds work_limit{0};  ///< limit of work that does not end; 0: none
    std::function<StallLook()> look;  ///< may block for a few seconds; an exception counts as a silent coordinator
    Line stalled;
    Line report;
  };
  /// Watches until stop_watching(), or until `stalled` was called.
  void watch(Progress progress);
  /// Ends watching. After it returns, the callbacks of watch() do not run.
  void stop_watching();

 private:
  void run();
  void check_phase(std::unique_lock<std::mutex>& lock);
  void check_progress(std::unique_lock<std::mutex>& lock);

  static constexpr std::chrono::milliseconds tick{200};
  const Line expired_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  bool stopping_ = false;
  bool looking_ = false;  // a callback of watch() runs
  RunClock clock_{tick};
  std::string phase_;
  std::string part_;
  RunClock::Duration phase_ends_{0};
  std::optional<Progress> progress_;
  std::optional<StallJudge> judge_;
  std::thread thread_;
};

}  // namespace maestro
