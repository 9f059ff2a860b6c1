// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/placement_change.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

constexpr Epoch now(7), before(6);

Directory directory_of(std::initializer_list<std::uint32_t> processes) {
  Directory directory;
  for (const std::uint32_t process : processes) {
    ProcessInfo info;
    info.process = ProcessId(process);
    directory.processes.push_back(info);
  }
  return directory;
}

PlacementsTaken taken(std::uint32_t process, Epoch epoch = now) {
  ReplicaAddress replica;
  replica.process = ProcessId(process);
  return {epoch, ProcessId(process), {replica}, {RingArrivals{{}, ReplicaIndex(process), {}, 5, {}}}};
}

TEST(PlacementChange, first_gathers_all_replicas_and_then_awaits_all_connections) {  // MV-2
  PlacementChange change;
  EXPECT_FALSE(change.under_way());
  ASSERT_TRUE(change.begin(now, directory_of({0, 2})));
  EXPECT_FALSE(change.ready({now, ProcessId(0)})) << "nobody has the addresses yet";
  EXPECT_FALSE(change.taken(taken(2)));
  EXPECT_FALSE(change.taken(taken(2)));
  EXPECT_FALSE(change.taken(taken(0, before)));
  EXPECT_FALSE(change.taken(taken(9)));
  EXPECT_TRUE(change.taken(taken(0)));
  ASSERT_EQ(change.directory().processes.size(), 2u);
  for (const ProcessInfo& process : change.directory().processes) {
    ASSERT_EQ(process.replicas.size(), 1u);
    EXPECT_EQ(process.replicas.front().process, process.process);
  }
  EXPECT_EQ(change.arrivals().size(), 2u);
  EXPECT_FALSE(change.ready({now, ProcessId(0)}));
  EXPECT_FALSE(change.ready({before, ProcessId(2)}));
  EXPECT_TRUE(change.under_way());
  EXPECT_TRUE(change.ready({now, ProcessId(2)}));
  EXPECT_FALSE(change.under_way());
}

TEST(PlacementChange, is_one_at_a_time) {  // MV-1
  PlacementChange change;
  ASSERT_TRUE(change.begin(before, directory_of({0})));
  EXPECT_FALSE(change.begin(now, directory_of({0})));
  EXPECT_TRUE(change.taken(taken(0, before)));
  EXPECT_TRUE(change.ready({before, ProcessId(0)}));
  EXPECT_TRUE(change.begin(now, directory_of({0})));
  EXPECT_TRUE(change.arrivals().empty());
}

}  // namespace
}  // namespace maestro
