// SPDX-License-Identifier: Apache-2.0
// Collects an endpoint's events for a test thread that waits for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "transport/transfer_types.hpp"

namespace maestro::testing {

/// Must outlive the endpoint that it observes.
class EventLog {
 public:
  struct Seen {
    std::vector<std::uint32_t> remote;      ///< immediates in order of arrival
    std::map<std::uint64_t, int> done;      ///< counts by cookie
    std::map<std::uint64_t, Error> failed;  ///< errors by cookie
    std::size_t failures = 0;
    std::vector<Error> endpoint_failures;
  };

  EndpointHandler handler() {
    return [this](const EndpointEvent& event) { note(event); };
  }
  /// Returns true once `holds(seen)`; false if a generous time limit has passed.
  template <class Condition>
  [[nodiscard]] bool wait_until(const Condition& holds, std::chrono::seconds limit = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return holds(seen_); });
  }
  [[nodiscard]] Seen seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void note(const EndpointEvent& event) {
    const std::lock_guard lock(mutex_);
    if (const auto* remote = std::get_if<RemoteWrite>(&event)) seen_.remote.push_back(remote->immediate);
    if (const auto* done = std::get_if<WriteDone>(&event)) ++seen_.done[done->cookie];
    if (const auto* failed = std::get_if<WriteFailed>(&event)) {
      seen_.failed[failed->cookie] = failed->error;
      ++seen_.failures;
    }
    if (const auto* broken = std::get_if<EndpointFailed>(&event)) seen_.endpoint_failures.push_back(broken->error);
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Seen seen_;
};

}  // namespace maestro::testing
