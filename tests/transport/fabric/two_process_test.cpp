// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "tests/transport/fabric/endpoint_fixture.hpp"
#include "tests/transport/fabric/peer_process.hpp"

namespace maestro::testing {
namespace {

class TwoProcessTest : public EndpointTest {};
INSTANTIATE_TEST_SUITE_P(Providers, TwoProcessTest, ::testing::Values("shm", "tcp"), provider_name);

TEST_P(TwoProcessTest, writes_of_every_size_arrive_whole_in_the_other_process) {
  constexpr std::size_t largest = std::size_t{8} << 20;
  Station station(GetParam(), largest);
  PeerProcess process(GetParam(), largest);
  const auto peer = station.endpoint->connect(process.target().address, "the other process").value_or_throw();
  std::vector<std::byte> expected(largest);
  std::size_t writes = 0;
  for (std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{16384}, std::size_t{1000001}, largest}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    fill_pattern({station.memory.data(), bytes}, bytes);
    std::copy_n(station.memory.begin(), bytes, expected.begin());
    writes += station.write_chunks(peer, process.target().region, ChunkPlan(bytes, 50000), writes);
    process.send("await " + std::to_string(writes));
    ASSERT_EQ(process.read_line(), "digest " + std::to_string(digest(expected)));
    // Only now may the source be overwritten.
    ASSERT_TRUE(station.events.wait_until([&](const auto& seen) { return seen.done.size() == writes; }));
  }
  EXPECT_EQ(station.events.seen().failures, 0u);
  EXPECT_EQ(process.end(), 0);
}

TEST_P(TwoProcessTest, the_other_process_writes_here) {
  constexpr std::size_t bytes = 3000000;
  Station station(GetParam(), bytes);
  PeerProcess process(GetParam(), bytes);
  std::ostringstream command;
  command << "write " << station.target() << ' ' << bytes << " 65536";
  process.send(command.str());
  ASSERT_EQ(process.read_line(), "done");
  const auto writes = chunk_count(bytes, 65536);
  ASSERT_TRUE(station.events.wait_until([&](const auto& seen) { return seen.remote.size() == writes; }));
  std::vector<std::byte> expected(bytes);
  fill_pattern(expected, 1);
  EXPECT_EQ(station.memory, expected);
  EXPECT_EQ(process.end(), 0);
}

TEST_P(TwoProcessTest, one_large_write_needs_no_chunks) {
  constexpr std::size_t bytes = std::size_t{8} << 20;
  Station station(GetParam(), bytes);
  PeerProcess process(GetParam(), bytes);
  fill_pattern(station.memory, 9);
  const auto peer = station.endpoint->connect(process.target().address).value_or_throw();
  station.write_chunks(peer, process.target().region, ChunkPlan(bytes, 0));
  process.send("await 1");
  EXPECT_EQ(process.read_line(), "digest " + std::to_string(digest(station.memory)));
}

}  // namespace
}  // namespace maestro::testing
