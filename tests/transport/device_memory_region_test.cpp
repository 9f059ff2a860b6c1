// SPDX-License-Identifier: Apache-2.0
// Regions over device memory. Transfers from device memory need a device and libfabric built for it. This tests a
// provider's requirements, a registration's attributes, and the error if a provider cannot register the memory.
#include "tests/transport/fabric/endpoint_fixture.hpp"
#include "transport/fabric/fabric_domain.hpp"

namespace maestro::testing {
namespace {

constexpr std::size_t size = std::size_t{1} << 20;

/// Returns libfabric's name for the provider that job files call `name`.
std::string library_name(const std::string& name) {
  return name == "tcp" ? "tcp;ofi_rxm" : name;
}

/// Returns whether this libfabric's provider reports that it transfers device memory.
bool has_device_memory(const std::string& name) {
  for (const KeyChoice keys : {KeyChoice::ours, KeyChoice::provider}) {
    const InfoPtr hints = make_hints(library_name(name), keys, MemoryKinds::host_and_devices);
    fi_info* found = nullptr;
    if (fi_getinfo(fabric_version, nullptr, nullptr, 0, hints.get(), &found) == 0) return InfoPtr(found) != nullptr;
  }
  return false;
}

TEST(DeviceMemoryRegion, a_provider_is_asked_for_memory_of_devices_only_where_that_is_wanted) {
  const InfoPtr host = make_hints("tcp;ofi_rxm");
  EXPECT_EQ(host->caps & FI_HMEM, 0u);
  EXPECT_EQ(host->domain_attr->mr_mode & FI_MR_HMEM, 0);
  const InfoPtr devices = make_hints("tcp;ofi_rxm", KeyChoice::ours, MemoryKinds::host_and_devices);
  EXPECT_EQ(devices->caps, host->caps | FI_HMEM);
  EXPECT_EQ(devices->domain_attr->mr_mode, (host->domain_attr->mr_mode & ~FI_MR_PROV_KEY) | FI_MR_HMEM);
}

TEST(DeviceMemoryRegion, a_registration_says_where_the_memory_lies_and_what_is_done_with_it) {
  std::byte memory[8];
  const iovec span{memory, sizeof memory};
  const fi_mr_attr host = make_registration(span, {}, 7);
  EXPECT_EQ(host.iface, FI_HMEM_SYSTEM);
  EXPECT_EQ(host.mr_iov, &span);
  EXPECT_EQ(host.iov_count, 1u);
  EXPECT_EQ(host.access, std::uint64_t{FI_WRITE | FI_REMOTE_WRITE});
  EXPECT_EQ(host.requested_key, 7u);
  for (const int device : {0, 3}) {
    const fi_mr_attr on_device = make_registration(span, {device}, 7);
    EXPECT_EQ(on_device.iface, FI_HMEM_CUDA);
    EXPECT_EQ(on_device.device.cuda, device);
    EXPECT_EQ(on_device.access, host.access);
  }
}

class DeviceMemoryEndpoint : public EndpointTest {
 protected:
  [[nodiscard]] static std::unique_ptr<Endpoint> open(const std::string& provider, EventLog& events, bool devices) {
    constexpr std::int64_t timeout_ms = 20000;
    EndpointOptions options{provider, "127.0.0.1", timeout_ms, events.handler()};
    options.device_memory = devices;
    return Endpoint::open(std::move(options)).value_or_throw();
  }
};

INSTANTIATE_TEST_SUITE_P(Providers, DeviceMemoryEndpoint, ::testing::Values("shm", "tcp"), provider_name);

TEST_P(DeviceMemoryEndpoint, memory_of_a_device_is_refused_where_nobody_asked_for_it) {
  EventLog events;
  const auto endpoint = open(GetParam(), events, false);
  std::vector<std::byte> memory(64);
  const auto region = endpoint->register_memory(memory.data(), memory.size(), {0});
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code, ErrorCode::unavailable);
  EXPECT_EQ(region.error().message, "the endpoint was opened for memory of the host alone");
}

TEST_P(DeviceMemoryEndpoint, what_the_provider_cannot_register_is_refused_with_the_reason) {
  EventLog events;
  const auto endpoint = open(GetParam(), events, true);
  std::vector<std::byte> memory(64);  // not a device's
  const auto region = endpoint->register_memory(memory.data(), memory.size(), {1});
  if (!has_device_memory(GetParam())) {
    ASSERT_FALSE(region.ok());
    EXPECT_EQ(region.error().message, "provider " + GetParam() + " has no FI_HMEM");
    return;
  }
  if (region.ok()) GTEST_SKIP() << "this libfabric takes the caller's word for where memory lies";
  EXPECT_EQ(region.error().code, ErrorCode::unavailable);
  EXPECT_EQ(region.error().message.rfind("cannot register 64 bytes of cuda:1 (fi_mr_regattr: ", 0), 0u)
      << region.error().message;
}

TEST_P(DeviceMemoryEndpoint, memory_of_the_host_is_written_as_ever_where_that_of_devices_was_asked_for) {
  EventLog events;
  const auto endpoint = open(GetParam(), events, true);
  EXPECT_EQ(endpoint->provider(), library_name(GetParam()));
  std::vector<std::byte> memory(size);
  std::vector<std::byte> landing(size);
  fill_pattern(memory, 11);
  const Region source = endpoint->register_memory(memory.data(), size).value_or_throw();
  const Region target = endpoint->register_memory(landing.data(), size).value_or_throw();
  const PeerHandle self = endpoint->connect(endpoint->address(), "itself").value_or_throw();
  const ChunkPlan plan(size, 70000);
  std::uint64_t cookie = 0;
  for (const Chunk chunk : plan) {
    endpoint->write({self, &source, chunk.offset, chunk.bytes, target.remote(), chunk.offset, 1u, cookie++});
  }
  EXPECT_TRUE(events.wait_until(
      [&](const auto& seen) { return seen.remote.size() == plan.size() && seen.done.size() == plan.size(); }));
  endpoint->stop();
  EXPECT_EQ(landing, memory);
  EXPECT_EQ(events.seen().failures, 0u);
}

}  // namespace
}  // namespace maestro::testing
