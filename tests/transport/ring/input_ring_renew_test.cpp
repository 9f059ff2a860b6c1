// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "tests/transport/ring/ring_peers.hpp"

namespace maestro {
namespace {

using namespace testing;

constexpr std::uint32_t new_number = 33;
constexpr Epoch new_epoch(7);

TEST(InputRingRenew, complete_sequences_stay_readable_and_incomplete_ones_come_again) {  // IR-5
  InputRing ring(spec_of(3));
  const Peers peers(ring);
  const ArrivalPlan whole = arrival_of(0, {3, 1});
  const ArrivalPlan part = arrival_of(1, {2, 4});
  const ArrivalPlan nothing = arrival_of(2, {5});
  for (const ArrivalPlan* arrival : {&whole, &part, &nothing}) ASSERT_FALSE(*ring.expect(*arrival, step));
  EXPECT_FALSE(peers.land_piece(whole, 0));
  EXPECT_TRUE(peers.land_piece(whole, 1));
  EXPECT_FALSE(peers.land_piece(part, 1));

  const std::byte* former = ring.memory();
  const std::shared_ptr<AlignedMemory> kept = ring.renew(new_number, new_epoch);
  EXPECT_EQ(kept->data(), former);
  EXPECT_NE(ring.memory(), former);
  EXPECT_EQ(ring.spec().ring, new_number);
  EXPECT_EQ(ring.spec().epoch, new_epoch);
  EXPECT_EQ(ring.complete(), std::vector<std::uint64_t>{0});

  EXPECT_FALSE(peers.land_piece(part, 1));
  EXPECT_TRUE(peers.land_piece(part, 0));
  EXPECT_TRUE(peers.land_piece(nothing, 0));
  EXPECT_EQ(ring.complete(), (std::vector<std::uint64_t>{0, 1, 2}));
  for (const auto& [sequence, rows] : std::map<std::uint64_t, std::int64_t>{{0, 4}, {1, 6}, {2, 5}}) {
    EXPECT_EQ(open_and_check(ring, sequence, rows), 0u);
  }
  EXPECT_EQ(ring.open(0)->tensor.raw(), former + ring.layout().payload_offset(0, 0));
  for (const std::uint64_t sequence : {0u, 1u, 2u}) EXPECT_TRUE(ring.release(sequence));
  EXPECT_EQ(ring.released(), 3u);
}

TEST(InputRingRenew, a_sequence_may_be_kept_over_several_generations) {  // IR-5
  InputRing ring(spec_of(2));
  const Peers peers(ring);
  const ArrivalPlan arrival = arrival_of(0, {3});
  ASSERT_FALSE(*ring.expect(arrival, step));
  ASSERT_TRUE(peers.land_piece(arrival, 0));
  (void)ring.renew(new_number, new_epoch);
  (void)ring.renew(new_number + 1, Epoch(8));
  EXPECT_EQ(open_and_check(ring, 0, 3), 0u);
}

TEST(InputRingRenew, a_sequence_released_out_of_order_does_not_come_again) {
  InputRing ring(spec_of(3));
  const Peers peers(ring);
  for (const std::uint64_t sequence : {0u, 1u}) ASSERT_FALSE(*ring.expect(arrival_of(sequence, {2}), step));
  ASSERT_TRUE(peers.land_piece(arrival_of(1, {2}), 0));
  ASSERT_FALSE(*ring.release(1));
  (void)ring.renew(new_number, new_epoch);
  EXPECT_EQ(ring.complete(), std::vector<std::uint64_t>{1});
  ASSERT_TRUE(peers.land_piece(arrival_of(0, {2}), 0));
  EXPECT_TRUE(*ring.release(0));
  EXPECT_EQ(ring.released(), 2u);
}

TEST(InputRingRenew, buffers_of_incomplete_hand_overs_go_back) {
  InputRing ring(spec_of(2));
  BufferPool pool(256, 2);
  const ArrivalPlan whole = arrival_of(0, {4});
  const ArrivalPlan part = arrival_of(1, {2, 2});
  ASSERT_FALSE(*ring.expect(whole, step));
  ASSERT_FALSE(*ring.expect(part, step));
  ASSERT_TRUE(*ring.handed_over(0, handed(pool.acquire(), whole, 0)));
  ASSERT_FALSE(*ring.handed_over(1, handed(pool.acquire(), part, 0)));
  EXPECT_EQ(pool.available(), 0u);
  (void)ring.renew(new_number, new_epoch);
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_EQ(open_and_check(ring, 0, 4), 0u);
  ASSERT_FALSE(*ring.handed_over(1, handed(pool.acquire(), part, 0)));
}

TEST(InputRingRenew, rows_that_arrived_before_their_work_item_come_again) {
  InputRing ring(spec_of(2));
  const Peers peers(ring);
  const ArrivalPlan arrival = arrival_of(0, {2});
  EXPECT_FALSE(peers.land_piece(arrival, 0));
  (void)ring.renew(new_number, new_epoch);
  EXPECT_TRUE(ring.complete().empty());
  ASSERT_FALSE(*ring.expect(arrival, step));
  EXPECT_TRUE(peers.land_piece(arrival, 0));
  EXPECT_EQ(open_and_check(ring, 0, 2), 0u);
}

}  // namespace
}  // namespace maestro
