// SPDX-License-Identifier: Apache-2.0
// An endpoint; the thread that waits for its events handles them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/fabric/endpoint.hpp"

namespace maestro::bench {

/// All errors, also of transfers, are thrown as JobError, since a measurement cannot go on after an error. All calls
/// must be from the same thread.
class Station {
 public:
  explicit Station(const std::string& provider);
  ~Station() { endpoint_->stop(); }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  [[nodiscard]] std::string address() const { return endpoint_->address(); }
  [[nodiscard]] std::string provider() const { return endpoint_->provider(); }
  std::unique_ptr<Region> register_memory(std::byte* data, std::size_t bytes);
  void connect(const std::string& address) { peer_ = endpoint_->connect(address, "the other end").value_or_throw(); }

  /// Writes to the peer; ignores the peer in `request`.
  void write(WriteRequest request);
  /// Handles events until `done` returns true; calls `landed` with the immediates of the peer's writes.
  void run_until(const std::function<bool()>& done, const std::function<void(std::uint32_t)>& landed);
  /// Returns the number of writes to the peer that are not confirmed yet.
  [[nodiscard]] std::uint64_t unfinished() const { return unfinished_; }

 private:
  std::mutex mutex_;  // guards events_
  std::condition_variable changed_;
  std::vector<EndpointEvent> events_;
  std::uint64_t unfinished_ = 0;
  PeerHandle peer_;
  std::unique_ptr<Endpoint> endpoint_;  // last: its thread uses the queue
};

}  // namespace maestro::bench
