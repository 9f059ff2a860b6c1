// SPDX-License-Identifier: Apache-2.0
// An endpoint with registered memory, for tests that run over each provider of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/fabric/event_log.hpp"
#include "tests/transport/fabric/transfer_wire.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/ring/chunk_plan.hpp"

namespace maestro::testing {

/// Members are destroyed from the last to the first: the endpoint before its log.
struct Station {
  Station(const std::string& provider, std::size_t bytes, std::int64_t timeout_ms = 20000)
      : memory(bytes),
        endpoint(Endpoint::open({provider, "127.0.0.1", timeout_ms, events.handler()}).value_or_throw()),
        region(std::make_unique<Region>(endpoint->register_memory(memory.data(), bytes).value_or_throw())) {}
  ~Station() { endpoint->stop(); }

  [[nodiscard]] WireTarget target() const { return {endpoint->address(), region->remote()}; }
  /// Writes `bytes` from the start of the memory to the start of a target; cookies count up from `first_cookie`.
  std::size_t write_chunks(PeerHandle peer, const RemoteRegion& remote, ChunkPlan plan,
                           std::uint64_t first_cookie = 0) {
    auto cookie = first_cookie;
    for (const auto chunk : plan) {
      endpoint->write({peer, region.get(), chunk.offset, chunk.bytes, remote, chunk.offset,
                       static_cast<std::uint32_t>(cookie), cookie});
      ++cookie;
    }
    return plan.size();
  }

  EventLog events;
  std::vector<std::byte> memory;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Region> region;
};

class EndpointTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { unsetenv("MAESTRO_PROVIDER"); }
};

inline std::string provider_name(const ::testing::TestParamInfo<std::string>& parameter) {
  return parameter.param;
}

}  // namespace maestro::testing
