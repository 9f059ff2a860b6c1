// Why a group was aborted: the first reason that is given stays.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

namespace maestro {

/// Thread-safe.
class AbortReason {
 public:
  void give(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (given_.load(std::memory_order_relaxed)) return;
    why_ = why.empty() ? "no reason was given" : why;
    given_.store(true, std::memory_order_release);
  }
  /// Cheap: for loops that wait.
  [[nodiscard]] bool given() const { return given_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  std::string why_;
  std::atomic<bool> given_ = false;
};

}  // namespace maestro
