// SPDX-License-Identifier: Apache-2.0
// An end of a measured transfer: an endpoint, its memory, and its events.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <istream>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "transport/fabric/endpoint.hpp"

namespace maestro::bench {

/// Data that an end sends to the other before they start.
struct Introduction {
  std::string address;
  RemoteRegion region;
};
std::ostream& operator<<(std::ostream& out, const Introduction& introduction);  // a line of text
std::istream& operator>>(std::istream& in, Introduction& introduction);

/// All errors, also of transfers, are thrown as JobError, since a measurement cannot go on after an error.
class TransferStation {
 public:
  TransferStation(const std::string& provider, std::size_t bytes);
  ~TransferStation() { endpoint_->stop(); }

  [[nodiscard]] Introduction introduce() const { return {endpoint_->address(), region_->remote()}; }
  [[nodiscard]] std::string provider() const { return endpoint_->provider(); }
  void meet(const Introduction& peer);

  /// Writes [offset, offset + bytes) to the same place of the peer's region.
  void write(std::size_t offset, std::size_t bytes);
  /// Waits until `count` writes of the peer have arrived in total.
  void await_remote(std::uint64_t count);
  /// Waits until `count` writes to the peer are done in total.
  void await_done(std::uint64_t count);
  [[nodiscard]] std::uint64_t written() const { return written_; }

 private:
  void note(const EndpointEvent& event);
  void await(const std::uint64_t& counter, std::uint64_t count);

  std::mutex mutex_;  // guards the counters and error_
  std::condition_variable changed_;
  std::uint64_t remote_ = 0;
  std::uint64_t done_ = 0;
  std::optional<Error> error_;

  std::vector<std::byte> memory_;
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<Region> region_;
  PeerHandle peer_;
  RemoteRegion target_;
  std::uint64_t written_ = 0;
};

}  // namespace maestro::bench
