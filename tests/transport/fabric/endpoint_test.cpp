// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/endpoint.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "tests/transport/fabric/endpoint_fixture.hpp"
#include "transport/ring/completion_count.hpp"

namespace maestro::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Providers, EndpointTest, ::testing::Values("shm", "tcp"), provider_name);

TEST_P(EndpointTest, writes_to_itself_land_whole_at_every_size) {
  constexpr std::size_t largest = std::size_t{8} << 20;
  Station source(GetParam(), largest);
  std::vector<std::byte> landing(largest);
  const auto target = source.endpoint->register_memory(landing.data(), landing.size()).value_or_throw();
  const auto self = source.endpoint->connect(source.endpoint->address(), "itself").value_or_throw();
  std::size_t writes = 0;
  for (std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{4096}, std::size_t{65537}, largest}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    fill_pattern({source.memory.data(), bytes}, bytes);
    std::fill(landing.begin(), landing.end(), std::byte{0});
    writes += source.write_chunks(self, target.remote(), ChunkPlan(bytes, 60000), writes);
    ASSERT_TRUE(source.events.wait_until(
        [&](const auto& seen) { return seen.remote.size() == writes && seen.done.size() == writes; }));
    ASSERT_TRUE(
        std::equal(landing.begin(), landing.begin() + static_cast<std::ptrdiff_t>(bytes), source.memory.begin()));
    ASSERT_TRUE(std::all_of(landing.begin() + static_cast<std::ptrdiff_t>(bytes), landing.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
  }
  const auto stats = source.endpoint->stats();
  EXPECT_EQ(stats.writes_done, writes);
  EXPECT_EQ(stats.bytes_done, 1 + 63 + 4096 + 65537 + largest);
  EXPECT_EQ(stats.remote_writes, writes);
  EXPECT_EQ(stats.writes_failed, 0u);
}

TEST_P(EndpointTest, takes_no_signals_but_faults_on_its_thread) {
  std::promise<sigset_t> blocked;
  const auto note = [&, seen = false](const EndpointEvent&) mutable {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    if (!std::exchange(seen, true)) blocked.set_value(now);
  };
  std::vector<std::byte> memory(64);
  const auto endpoint = Endpoint::open({GetParam(), "127.0.0.1", 20000, note}).value_or_throw();
  const auto region = endpoint->register_memory(memory.data(), memory.size()).value_or_throw();
  const auto self = endpoint->connect(endpoint->address()).value_or_throw();
  endpoint->write({self, &region, 0, 32, region.remote(), 32, 1, 0});
  const sigset_t set = blocked.get_future().get();
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) EXPECT_EQ(sigismember(&set, fault), 0) << fault;
  for (const int other : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) EXPECT_EQ(sigismember(&set, other), 1) << other;
  endpoint->stop();
}

TEST_P(EndpointTest, completions_of_many_sequences_in_a_ring_add_up) {
  constexpr std::uint32_t slots = 4;
  constexpr std::size_t slot_bytes = 50000;
  Station source(GetParam(), slot_bytes);
  std::vector<std::byte> ring(slots * slot_bytes);
  const auto target = source.endpoint->register_memory(ring.data(), ring.size()).value_or_throw();
  const auto self = source.endpoint->connect(source.endpoint->address()).value_or_throw();
  CompletionCounter counter(slots);
  const ChunkPlan plan(slot_bytes, 7000);
  for (std::uint64_t seq = 0; seq < 20; ++seq) {
    ASSERT_TRUE(counter.expect(seq, plan.size()));
    const auto immediate = pack({EdgeId(9), static_cast<std::uint32_t>(seq % slots), wrap_sequence(seq)});
    for (const auto chunk : plan) {
      source.endpoint->write({self, source.region.get(), chunk.offset, chunk.bytes, target.remote(),
                              (seq % slots) * slot_bytes + chunk.offset, immediate, seq});
    }
    const auto so_far = (seq + 1) * plan.size();
    ASSERT_TRUE(source.events.wait_until([&](const auto& seen) { return seen.remote.size() == so_far; }));
    const auto remote = source.events.seen().remote;
    Arrival last = Arrival::pending;
    for (auto at = so_far - plan.size(); at < so_far; ++at) last = counter.arrived(unpack_immediate(remote[at]));
    ASSERT_EQ(last, Arrival::complete);
    ASSERT_TRUE(counter.release(seq).ok());
  }
}

TEST_P(EndpointTest, a_write_without_an_immediate_is_silent_at_the_target) {
  Station source(GetParam(), 100);
  Station other(GetParam(), 100);
  const auto peer = source.endpoint->connect(other.endpoint->address()).value_or_throw();
  fill_pattern(source.memory, 5);
  source.endpoint->write({peer, source.region.get(), 0, 100, other.region->remote(), 0, std::nullopt, 1});
  source.endpoint->write({peer, source.region.get(), 0, 1, other.region->remote(), 0, 42, 2});
  ASSERT_TRUE(source.events.wait_until([](const auto& seen) { return seen.done.size() == 2; }));
  ASSERT_TRUE(other.events.wait_until([](const auto& seen) { return !seen.remote.empty(); }));
  EXPECT_EQ(other.events.seen().remote, std::vector<std::uint32_t>{42});
}

TEST_P(EndpointTest, two_endpoints_write_to_each_other_at_once) {
  constexpr std::size_t bytes = 1 << 20;
  Station left(GetParam(), 2 * bytes);
  Station right(GetParam(), 2 * bytes);
  fill_pattern({left.memory.data(), bytes}, 1);
  fill_pattern({right.memory.data(), bytes}, 2);
  const auto to_right = left.endpoint->connect(right.endpoint->address()).value_or_throw();
  const auto to_left = right.endpoint->connect(left.endpoint->address()).value_or_throw();
  const auto second_half = [](const Station& station) {
    auto remote = station.region->remote();
    return [remote](Station& from, PeerHandle peer, Chunk chunk, std::uint64_t cookie) {
      from.endpoint->write(
          {peer, from.region.get(), chunk.offset, chunk.bytes, remote, bytes + chunk.offset, 1, cookie});
    };
  };
  const auto write_right = second_half(right);
  const auto write_left = second_half(left);
  const ChunkPlan plan(bytes, 10000);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    write_right(left, to_right, plan[i], i);
    write_left(right, to_left, plan[i], i);
  }
  const auto all_here = [&](const auto& seen) {
    return seen.remote.size() == plan.size() && seen.done.size() == plan.size();
  };
  ASSERT_TRUE(left.events.wait_until(all_here));
  ASSERT_TRUE(right.events.wait_until(all_here));
  EXPECT_TRUE(std::equal(left.memory.begin(), left.memory.begin() + bytes, right.memory.begin() + bytes));
  EXPECT_TRUE(std::equal(right.memory.begin(), right.memory.begin() + bytes, left.memory.begin() + bytes));
}

TEST_P(EndpointTest, writes_from_several_threads_each_end_exactly_once) {  // EP-1, PT-3
  constexpr std::uint64_t threads = 4;
  constexpr std::uint64_t each = 200;
  Station source(GetParam(), 64);
  std::vector<std::byte> landing(64);
  const auto target = source.endpoint->register_memory(landing.data(), landing.size()).value_or_throw();
  const auto self = source.endpoint->connect(source.endpoint->address()).value_or_throw();
  std::vector<std::thread> writers;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    writers.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < each; ++i) {
        source.endpoint->write({self, source.region.get(), 0, 64, target.remote(), 0, 1, thread * each + i});
      }
    });
  }
  for (auto& writer : writers) writer.join();
  ASSERT_TRUE(source.events.wait_until(
      [](const auto& seen) { return seen.remote.size() == threads * each && seen.done.size() == threads * each; }));
  const auto seen = source.events.seen();
  EXPECT_TRUE(std::all_of(seen.done.begin(), seen.done.end(), [](const auto& entry) { return entry.second == 1; }));
  EXPECT_EQ(seen.failures, 0u);
}

TEST_P(EndpointTest, stop_lets_accepted_writes_finish) {  // EP-1, PT-3
  constexpr std::size_t bytes = 1 << 20;
  Station target(GetParam(), bytes);
  Station source(GetParam(), bytes);
  fill_pattern(source.memory, 3);
  const auto peer = source.endpoint->connect(target.endpoint->address()).value_or_throw();
  const auto writes = source.write_chunks(peer, target.region->remote(), ChunkPlan(bytes, 10000));
  source.endpoint->stop();
  const auto seen = source.events.seen();
  EXPECT_EQ(seen.done.size(), writes);
  EXPECT_EQ(seen.failures, 0u);
  ASSERT_TRUE(target.events.wait_until([&](const auto& events) { return events.remote.size() == writes; }));
  EXPECT_EQ(target.memory, source.memory);
}

TEST_P(EndpointTest, a_stopped_endpoint_refuses_everything_and_may_be_stopped_again) {  // EP-2
  Station station(GetParam(), 64);
  const auto self = station.endpoint->connect(station.endpoint->address()).value_or_throw();
  station.endpoint->stop();
  station.endpoint->stop();
  station.endpoint->write({self, station.region.get(), 0, 1, station.region->remote(), 0, 1, 77});
  const auto seen = station.events.seen();
  ASSERT_EQ(seen.failed.count(77), 1u);
  EXPECT_EQ(seen.failed.at(77).code, ErrorCode::cancelled);
  EXPECT_FALSE(station.endpoint->connect(station.endpoint->address()).ok());
  EXPECT_FALSE(station.endpoint->register_memory(station.memory.data(), 1).ok());
}

TEST_P(EndpointTest, two_threads_may_stop_an_endpoint_that_others_still_write_to) {  // EP-1
  Station station(GetParam(), 64);
  const auto self = station.endpoint->connect(station.endpoint->address()).value_or_throw();
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (std::uint64_t i = 0; i < 500; ++i) {
      station.endpoint->write({self, station.region.get(), 0, 32, station.region->remote(), 32, 1, i});
    }
  });
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { station.endpoint->stop(); });
  for (auto& thread : threads) thread.join();
  const auto seen = station.events.seen();
  EXPECT_EQ(seen.done.size() + seen.failed.size(), 500u);
  EXPECT_EQ(
      std::accumulate(seen.done.begin(), seen.done.end(), seen.failures,
                      [](std::size_t sum, const auto& entry) { return sum + static_cast<std::size_t>(entry.second); }),
      500u);
}

TEST_P(EndpointTest, a_key_is_useless_once_its_memory_was_registered_anew) {  // FD-3
  constexpr std::size_t bytes = 4096;
  Station target(GetParam(), bytes);
  const RemoteRegion old_region = target.region->remote();
  target.region.reset();
  target.region =
      std::make_unique<Region>(target.endpoint->register_memory(target.memory.data(), bytes).value_or_throw());
  const RemoteRegion new_region = target.region->remote();
  EXPECT_NE(new_region.key, old_region.key);
  std::vector<std::byte> other_memory(bytes);
  const Region other = target.endpoint->register_memory(other_memory.data(), bytes).value_or_throw();
  {
    Station stranger(GetParam(), bytes, 2000);
    std::fill(stranger.memory.begin(), stranger.memory.end(), std::byte{0xee});
    const PeerHandle peer = stranger.endpoint->connect(target.endpoint->address()).value_or_throw();
    stranger.endpoint->write({peer, stranger.region.get(), 0, bytes, old_region, 0, 7u, 1});
    // Writes that follow on the same connection: if one of them has arrived or failed, the first is done. (tcp closes
    // the connection, and reports writes sent by then as done.)
    bool dealt_with = false;
    for (std::uint64_t cookie = 2; cookie < 60 && !dealt_with; ++cookie) {
      stranger.endpoint->write({peer, stranger.region.get(), 0, bytes, other.remote(), 0, 9u, cookie});
      dealt_with = target.events.wait_until(
          [&](const auto& seen) { return !seen.remote.empty() || stranger.events.seen().failures > 0; },
          std::chrono::seconds(1));
    }
    ASSERT_TRUE(dealt_with);
    const auto immediates = target.events.seen().remote;
    EXPECT_EQ(std::ranges::count(immediates, 7u), 0);
  }
  EXPECT_TRUE(std::ranges::all_of(target.memory, [](std::byte value) { return value == std::byte{0}; }));
  EXPECT_TRUE(target.events.seen().endpoint_failures.empty());

  Station friendly(GetParam(), bytes);
  std::fill(friendly.memory.begin(), friendly.memory.end(), std::byte{0x11});
  const PeerHandle peer = friendly.endpoint->connect(target.endpoint->address()).value_or_throw();
  friendly.endpoint->write({peer, friendly.region.get(), 0, bytes, new_region, 0, 8u, 1});
  ASSERT_TRUE(target.events.wait_until([](const auto& seen) { return std::ranges::count(seen.remote, 8u) == 1; }));
  EXPECT_TRUE(std::ranges::all_of(target.memory, [](std::byte value) { return value == std::byte{0x11}; }));
}

TEST_P(EndpointTest, keys_tell_nothing_about_each_other) {  // FD-3
  Station station(GetParam(), 64);
  std::vector<Region> regions;
  std::set<std::uint64_t> distances;
  std::uint64_t last = station.region->remote().key;
  for (int at = 0; at < 32; ++at) {
    regions.push_back(station.endpoint->register_memory(station.memory.data(), 64).value_or_throw());
    distances.insert(regions.back().remote().key - last);
    last = regions.back().remote().key;
  }
  EXPECT_GT(distances.size(), 24u);
}

TEST_P(EndpointTest, a_region_may_outlive_its_endpoint) {  // FD-1
  std::vector<std::byte> memory(64);
  std::unique_ptr<Region> region;
  {
    EventLog events;
    auto endpoint = Endpoint::open({GetParam(), "127.0.0.1", 1000, events.handler()}).value_or_throw();
    region = std::make_unique<Region>(endpoint->register_memory(memory.data(), 64).value_or_throw());
  }
  EXPECT_EQ(region->bytes(), 64u);
  EXPECT_EQ(region->remote().bytes, 64u);
}

}  // namespace
}  // namespace maestro::testing
