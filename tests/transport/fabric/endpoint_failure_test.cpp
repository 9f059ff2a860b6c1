// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/fabric/endpoint_fixture.hpp"
#include "tests/transport/fabric/peer_process.hpp"

namespace maestro::testing {
namespace {

class EndpointFailureTest : public EndpointTest {
 protected:
  /// Returns whether the endpoint has failed because the killed peer held a lock (EP-5), which happens only on shm.
  static bool met_a_lock(const EventLog::Seen& seen) {
    if (seen.endpoint_failures.empty()) return false;
    EXPECT_EQ(GetParam(), "shm") << seen.endpoint_failures.front().message;
    EXPECT_NE(seen.endpoint_failures.front().message.find("restart this process"), std::string::npos);
    return true;
  }
};
INSTANTIATE_TEST_SUITE_P(Providers, EndpointFailureTest, ::testing::Values("shm", "tcp"), provider_name);

TEST_P(EndpointFailureTest, an_invalid_write_fails_by_an_event_that_says_why) {  // EP-1
  Station station(GetParam(), 64);
  Station other(GetParam(), 64);
  const auto self = station.endpoint->connect(station.endpoint->address(), "itself").value_or_throw();
  const WriteRequest good{self, station.region.get(), 0, 8, station.region->remote(), 0, 1, 0};
  const std::vector<std::pair<std::string, std::function<void(WriteRequest&)>>> mistakes{
      {"names peer 9, but only 1 are connected", [](auto& r) { r.peer = PeerHandle(9); }},
      {"a write of 0 bytes to itself", [](auto& r) { r.bytes = 0; }},
      {"names no source region", [](auto& r) { r.local = nullptr; }},
      {"a region of another endpoint", [&](auto& r) { r.local = other.region.get(); }},
      {"reads at offset 60 of a source region of 64 bytes", [](auto& r) { r.local_offset = 60; }},
      {"goes to offset 57 of a region of 64 bytes", [](auto& r) { r.remote_offset = 57; }},
      {"reads at offset 18446744073709551612", [](auto& r) { r.local_offset = ~std::size_t{3}; }},
  };
  for (std::uint64_t cookie = 0; cookie < mistakes.size(); ++cookie) {
    auto request = good;
    request.cookie = cookie;
    mistakes[cookie].second(request);
    station.endpoint->write(request);
    ASSERT_TRUE(station.events.wait_until([&](const auto& seen) { return seen.failed.count(cookie) == 1; }));
    const auto error = station.events.seen().failed.at(cookie);
    EXPECT_EQ(error.code, ErrorCode::invalid_argument);
    EXPECT_NE(error.message.find(mistakes[cookie].first), std::string::npos) << error.message;
  }
  EXPECT_EQ(station.endpoint->stats().writes_failed, mistakes.size());
}

// Single writes until one fails: on tcp the kernel may still accept a write for a peer that has just died. On shm the
// peer may die while it takes the first write, holding its lock.
TEST_P(EndpointFailureTest, a_write_to_a_killed_peer_fails_within_its_deadline_naming_the_peer) {  // EP-3
  constexpr std::int64_t timeout_ms = 2000;  // the living peer must meet it too, on a busy machine
  Station station(GetParam(), 4096, timeout_ms);
  PeerProcess process(GetParam(), 4096);
  const auto peer = station.endpoint->connect(process.target().address, "student replica 1").value_or_throw();
  const auto write = [&](std::uint64_t cookie) {
    station.endpoint->write({peer, station.region.get(), 0, 4096, process.target().region, 0, 1, cookie});
  };
  write(0);
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) { return seen.done.count(0) == 1; }));
  process.kill_now();
  std::chrono::steady_clock::duration taken{};
  for (std::uint64_t cookie = 1; station.events.seen().failed.empty(); ++cookie) {
    ASSERT_LT(cookie, 5000u) << "writes to a dead process go on succeeding";
    const auto start = std::chrono::steady_clock::now();
    write(cookie);
    ASSERT_TRUE(station.events.wait_until([&](const auto& seen) {
      return seen.done.count(cookie) + seen.failed.count(cookie) == 1 || !seen.endpoint_failures.empty();
    }));
    if (met_a_lock(station.events.seen())) return;
    taken = std::chrono::steady_clock::now() - start;
  }
  const auto seen = station.events.seen();
  EXPECT_NE(seen.failed.begin()->second.message.find("student replica 1"), std::string::npos)
      << seen.failed.begin()->second.message;
  EXPECT_LT(taken, std::chrono::milliseconds(10 * timeout_ms));
}

TEST_P(EndpointFailureTest, writes_to_other_peers_go_on_while_one_peer_is_dead) {  // EP-4
  Station station(GetParam(), 4096, 2000);
  Station healthy(GetParam(), 4096);
  const auto alive = station.endpoint->connect(healthy.endpoint->address(), "the living").value_or_throw();
  PeerProcess process(GetParam(), 4096);
  const auto dead = station.endpoint->connect(process.target().address, "the dead").value_or_throw();
  process.kill_now();
  for (std::uint64_t cookie = 0; cookie < 20; ++cookie) {
    station.endpoint->write({dead, station.region.get(), 0, 4096, process.target().region, 0, 1, cookie});
    station.endpoint->write({alive, station.region.get(), 0, 4096, healthy.region->remote(), 0, 1, 100 + cookie});
  }
  ASSERT_TRUE(station.events.wait_until(
      [](const auto& seen) { return seen.done.size() + seen.failed.size() == 40 || !seen.endpoint_failures.empty(); }));
  const auto seen = station.events.seen();
  if (met_a_lock(seen)) return;
  for (std::uint64_t cookie = 100; cookie < 120; ++cookie) EXPECT_EQ(seen.done.count(cookie), 1u) << cookie;
  ASSERT_TRUE(healthy.events.wait_until([](const auto& events) { return events.remote.size() == 20; }));
}

TEST_P(EndpointFailureTest, an_abandoned_peer_fails_its_writes_at_once) {
  Station station(GetParam(), 64, 600000);
  PeerProcess process(GetParam(), 64);
  const auto peer = station.endpoint->connect(process.target().address, "teacher replica 0").value_or_throw();
  process.kill_now();
  station.endpoint->write({peer, station.region.get(), 0, 64, process.target().region, 0, 1, 1});
  station.endpoint->abandon(peer);
  station.endpoint->write({peer, station.region.get(), 0, 64, process.target().region, 0, 1, 2});
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) { return seen.failed.count(2) == 1; }));
  ASSERT_TRUE(
      station.events.wait_until([](const auto& seen) { return seen.done.count(1) + seen.failed.count(1) == 1; }));
  const auto error = station.events.seen().failed.at(2);
  EXPECT_EQ(error.code, ErrorCode::peer_lost);
  EXPECT_NE(error.message.find("teacher replica 0"), std::string::npos);
}

TEST_P(EndpointFailureTest,
       a_write_that_a_dead_peer_never_read_keeps_back_no_other_or_the_endpoint_says_so) {  // EP-6, PT-6
  constexpr std::size_t bytes = 1 << 20;  // shm's reader copies so many bytes from the writer
  Station station(GetParam(), bytes, 600'000);
  Station healthy(GetParam(), bytes);
  const auto alive = station.endpoint->connect(healthy.endpoint->address(), "the living").value_or_throw();
  PeerProcess process(GetParam(), bytes);
  const auto dead = station.endpoint->connect(process.target().address, "the dead").value_or_throw();
  station.endpoint->write({dead, station.region.get(), 0, bytes, process.target().region, 0, 1, 0});
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) { return seen.done.count(0) == 1; }));
  process.kill_now();
  station.endpoint->write({dead, station.region.get(), 0, bytes, process.target().region, 0, 1, 1});
  station.endpoint->write({alive, station.region.get(), 0, bytes, healthy.region->remote(), 0, 1, 2});
  ASSERT_TRUE(healthy.events.wait_until([](const auto& events) { return events.remote.size() == 1; }));
  station.endpoint->abandon(dead);
  ASSERT_TRUE(station.events.wait_until(
      [](const auto& seen) { return seen.done.count(2) == 1 || !seen.endpoint_failures.empty(); }));
  const auto seen = station.events.seen();
  if (seen.endpoint_failures.empty()) return;
  EXPECT_EQ(GetParam(), "shm");
  const std::string& message = seen.endpoint_failures.front().message;
  EXPECT_TRUE(message.find("a write to the dead") != std::string::npos || met_a_lock(seen)) << message;
}

// Only shm has the second outcome; see EP-5.
TEST_P(EndpointFailureTest, a_sender_killed_half_way_leaves_its_target_in_order_or_the_target_says_so) {  // EP-4, EP-5
  constexpr std::size_t bytes = 1 << 20;
  Station station(GetParam(), bytes, 3000);
  PeerProcess process(GetParam(), bytes);
  std::ostringstream command;
  command << "flood " << station.target() << ' ' << bytes;
  process.send(command.str());
  ASSERT_EQ(process.read_line(), "flooding");
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) { return seen.remote.size() >= 50; }));
  process.kill_now();
  std::vector<std::byte> landing(64);
  const auto target = station.endpoint->register_memory(landing.data(), landing.size()).value_or_throw();
  const auto self = station.endpoint->connect(station.endpoint->address()).value_or_throw();
  station.endpoint->write({self, station.region.get(), 0, 64, target.remote(), 0, 4242, 1});
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) {
    return (seen.done.count(1) == 1 && seen.remote.back() == 4242) || !seen.endpoint_failures.empty();
  }));
  if (!met_a_lock(station.events.seen())) return;
  station.endpoint->write({self, station.region.get(), 0, 64, target.remote(), 0, 4242, 2});
  EXPECT_EQ(station.events.seen().failed.count(2), 1u);
}

TEST_P(EndpointFailureTest, a_peer_with_another_provider_is_refused_with_both_names) {
  Station station(GetParam(), 64);
  Station other(GetParam() == "shm" ? "tcp" : "shm", 64);
  const auto result = station.endpoint->connect(other.endpoint->address(), "vision replica 2");
  ASSERT_FALSE(result.ok());
  for (const auto& part : {"vision replica 2", "'shm'", "'tcp;ofi_rxm'", "transport.provider"}) {
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  }
  EXPECT_FALSE(station.endpoint->connect("").ok());
  EXPECT_FALSE(station.endpoint->connect(station.endpoint->provider() + "\n").ok());
}

// The lock in an endpoint's shared memory, as libfabric 1.17 lays it out on x86-64 (1: free).
class SharedLock {
 public:
  explicit SharedLock(const std::string& address) {
    const auto name = "/" + address.substr(address.rfind('/') + 1);
    const int file = shm_open(name.c_str(), O_RDWR, 0);
    if (file < 0) return;
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) words_ = static_cast<volatile std::int32_t*>(page);
  }
  ~SharedLock() {
    if (words_ != nullptr) munmap(const_cast<std::int32_t*>(words_), 4096);
  }
  [[nodiscard]] bool has_known_layout() const { return words_ != nullptr && words_[1] == getpid() && words_[6] == 1; }
  void take() { words_[6] = 0; }
  void free() { words_[6] = 1; }

 private:
  volatile std::int32_t* words_ = nullptr;
};

TEST(EndpointShared, a_lock_that_a_killed_process_left_taken_fails_the_endpoint_and_stop_returns) {  // EP-5, PT-5
  unsetenv("MAESTRO_PROVIDER");
  Station station("shm", 64, 500);
  SharedLock lock(station.endpoint->address());
  if (!lock.has_known_layout()) GTEST_SKIP() << "this version of libfabric lays out its shared memory in another way";
  const auto self = station.endpoint->connect(station.endpoint->address()).value_or_throw();
  const WriteRequest request{self, station.region.get(), 0, 8, station.region->remote(), 32, 1, 1};
  const std::string address = station.endpoint->address();
  const std::string segment = "/dev/shm/" + address.substr(address.rfind('/') + 1);
  EXPECT_TRUE(std::filesystem::exists(segment)) << segment;
  lock.take();
  station.endpoint->write(request);
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) { return !seen.endpoint_failures.empty(); }));
  station.endpoint->stop();
  EXPECT_FALSE(std::filesystem::exists(segment)) << "nobody would remove it while this process lives";
  station.endpoint->write(request);
  EXPECT_FALSE(station.endpoint->connect(station.endpoint->address()).ok());
  const auto seen = station.events.seen();
  ASSERT_EQ(seen.endpoint_failures.size(), 1u);
  EXPECT_NE(seen.endpoint_failures.front().message.find("restart this process"), std::string::npos);
  EXPECT_EQ(seen.failures, 1u) << "the write after the failure, refused at once";
  EXPECT_TRUE(seen.done.empty());
  lock.free();  // the blocked thread returns, reports nothing and ends
}

TEST(EndpointShared, a_lock_is_looked_for_sooner_once_a_peer_was_abandoned) {  // EP-5, PT-5
  unsetenv("MAESTRO_PROVIDER");
  Station station("shm", 64, 600'000);  // no other deadline may end this test
  const Station other("shm", 64, 600'000);
  SharedLock lock(station.endpoint->address());
  if (!lock.has_known_layout()) GTEST_SKIP() << "this version of libfabric lays out its shared memory in another way";
  const auto self = station.endpoint->connect(station.endpoint->address()).value_or_throw();
  const auto lost = station.endpoint->connect(other.endpoint->address()).value_or_throw();
  lock.take();
  station.endpoint->write({self, station.region.get(), 0, 8, station.region->remote(), 32, 1, 1});
  station.endpoint->abandon(lost);
  ASSERT_TRUE(station.events.wait_until([](const auto& seen) { return !seen.endpoint_failures.empty(); }));
  EXPECT_NE(station.events.seen().endpoint_failures.front().message.find("for 1000 ms"), std::string::npos);
  lock.free();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory exceeds any limit
TEST(EndpointShared, a_segment_that_the_address_space_has_no_room_for_is_refused) {
  unsetenv("MAESTRO_PROVIDER");
  Station station("shm", 64);
  const Station other("shm", 64);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::uint64_t pages = 0;  // used by this process
  std::ifstream("/proc/self/statm") >> pages;
  constexpr std::uint64_t room = 4 << 20;  // less than a segment's 16 MiB
  const rlimit tight{pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + room, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const auto refused = station.endpoint->connect(other.endpoint->address(), "process 1");
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("cannot connect to process 1 (the system refused "), std::string::npos);
  EXPECT_NE(refused.error().message.find("ulimit -v"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(station.endpoint->connect(other.endpoint->address()).ok());
}
#endif

TEST(EndpointOpen, bad_options_are_refused_with_a_remedy) {
  unsetenv("MAESTRO_PROVIDER");
  const EndpointHandler ignore = [](const EndpointEvent&) {};
  const auto error_of = [](EndpointOptions options) {
    auto result = Endpoint::open(std::move(options));
    return result ? std::string("opened") : result.error().message;
  };
  EXPECT_NE(error_of({"carrier pigeon", "127.0.0.1", 100, ignore}).find("available on this machine"),
            std::string::npos);
  EXPECT_NE(error_of({"tcp", "203.0.113.9", 100, ignore}).find("transport.listen"), std::string::npos);
  EXPECT_NE(error_of({"tcp", "127.0.0.1", 0, ignore}).find("transport.timeout_s"), std::string::npos);
  EXPECT_NE(error_of({"tcp", "127.0.0.1", 100, nullptr}).find("handler"), std::string::npos);
}

TEST(EndpointOpen, the_environment_chooses_the_provider) {
  setenv("MAESTRO_PROVIDER", "tcp", 1);
  auto endpoint = Endpoint::open({"shm", "127.0.0.1", 100, [](const EndpointEvent&) {}});
  unsetenv("MAESTRO_PROVIDER");
  ASSERT_TRUE(endpoint.ok());
  EXPECT_EQ((*endpoint)->provider(), "tcp;ofi_rxm");
}

}  // namespace
}  // namespace maestro::testing
