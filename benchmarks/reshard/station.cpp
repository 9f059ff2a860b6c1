// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/reshard/station.hpp"

#include <utility>

namespace maestro::bench {

namespace {
constexpr std::int64_t timeout_ms = 20000;
}

Station::Station(const std::string& provider) {
  const auto note = [this](const EndpointEvent& event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    }
    changed_.notify_one();
  };
  endpoint_ = Endpoint::open({provider, "127.0.0.1", timeout_ms, note}).value_or_throw();
}

std::unique_ptr<Region> Station::register_memory(std::byte* data, std::size_t bytes) {
  return std::make_unique<Region>(endpoint_->register_memory(data, bytes).value_or_throw());
}

void Station::write(WriteRequest request) {
  request.peer = peer_;
  ++unfinished_;
  endpoint_->write(request);
}

void Station::run_until(const std::function<bool()>& done, const std::function<void(std::uint32_t)>& landed) {
  std::vector<EndpointEvent> events;
  while (!done()) {
    events.clear();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !events_.empty(); });
      std::swap(events, events_);
    }
    for (const EndpointEvent& event : events) {
      if (const auto* remote = std::get_if<RemoteWrite>(&event)) landed(remote->immediate);
      if (std::holds_alternative<WriteDone>(event)) --unfinished_;
      if (const auto* failed = std::get_if<WriteFailed>(&event)) throw JobError(failed->error);
      if (const auto* failed = std::get_if<EndpointFailed>(&event)) throw JobError(failed->error);
    }
  }
}

}  // namespace maestro::bench
