// SPDX-License-Identifier: Apache-2.0
// The groups that work of a device meets in, for whoever waits for that work: a network may fail without a word to the
// stream, whose work then never ends.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace maestro {

/// What may fail so.
class WatchedGroup {
 public:
  virtual ~WatchedGroup() = default;
  /// What has failed and was not told yet, as a text for a person, which then has aborted the group; else empty. Any
  /// thread.
  [[nodiscard]] virtual std::string network_failure() const = 0;
};

/// Thread-safe.
class GroupWatch {
 public:
  void add(const WatchedGroup& group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(&group);
  }
  /// Waits for a network_failure() that is asked now.
  void remove(const WatchedGroup& group) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, &group);
  }
  /// The failure of a group; empty when all is well, or when they were asked less than `interval` ago.
  [[nodiscard]] std::string failure(std::chrono::milliseconds interval = std::chrono::milliseconds(100)) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (groups_.empty() || now - asked_ < interval) return {};
    asked_ = now;
    for (const WatchedGroup* group : groups_) {
      if (std::string failed = group->network_failure(); !failed.empty()) return failed;
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<const WatchedGroup*> groups_;
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace maestro
