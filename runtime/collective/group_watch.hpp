// SPDX-License-Identifier: Apache-2.0
// Groups whose collectives are queued on a device, for the thread that waits for the device's work: a network may fail
// without an error on the stream, whose work then never ends.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace maestro {

/// A group that may fail without an error on the stream.
class WatchedGroup {
 public:
  virtual ~WatchedGroup() = default;
  /// Returns a failure that was not reported yet, as a text for people, after it has aborted the group; empty if there
  /// is none. Any thread.
  [[nodiscard]] virtual std::string network_failure() const = 0;
};

/// Thread-safe.
class GroupWatch {
 public:
  void add(const WatchedGroup& group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(&group);
  }
  /// Removes a group; waits for a running query of its network_failure().
  void remove(const WatchedGroup& group) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, &group);
  }
  /// Returns the failure of a group; empty if there is none, or if the last query was less than `interval` ago.
  [[nodiscard]] std::string failure(std::chrono::milliseconds interval = std::chrono::milliseconds(100)) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (groups_.empty() || now - queried_ < interval) return {};
    queried_ = now;
    for (const WatchedGroup* group : groups_) {
      if (std::string failed = group->network_failure(); !failed.empty()) return failed;
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<const WatchedGroup*> groups_;
  std::chrono::steady_clock::time_point queried_{};
};

}  // namespace maestro
