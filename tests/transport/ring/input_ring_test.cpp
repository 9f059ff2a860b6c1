// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/input_ring.hpp"

#include <random>

#include "tests/transport/ring/ring_peers.hpp"

namespace maestro {
namespace {

using namespace testing;

/// A space whose only block has a fixed address in host memory.
class FixedMemory final : public MemorySpace {
 public:
  explicit FixedMemory(std::byte* block) : block_(block) {}
  [[nodiscard]] bool host() const override { return true; }
  [[nodiscard]] std::byte* allocate(std::size_t /*bytes*/) override { return block_; }
  void release(std::byte* /*block*/, std::size_t /*bytes*/) noexcept override {}
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(host_to, from, bytes);
  }
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override {
    std::memcpy(to, host_from, bytes);
  }
  void zero(std::byte* to, std::size_t bytes) override { std::memset(to, 0, bytes); }

 private:
  std::byte* block_;
};

TEST(InputRing, writes_in_any_order_before_or_after_the_token_complete_a_sequence_once) {  // IR-1
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    InputRing ring(spec_of(2, seed % 2 == 0 ? 24 : 0));
    const Peers peers(ring);
    const ArrivalPlan arrival = arrival_of(0, {3, 1, 5});
    std::vector<std::function<bool()>> events;
    for (std::uint32_t index = 0; index < 3; ++index) {
      for (const auto& write : peers.writes(arrival, index)) {
        events.push_back([&peers, write] { return peers.land(0, write); });
      }
    }
    events.push_back([&] { return *ring.expect(arrival, step); });
    std::shuffle(events.begin(), events.end(), random);
    for (std::size_t at = 0; at < events.size(); ++at) EXPECT_EQ(events[at](), at + 1 == events.size());
    EXPECT_EQ(open_and_check(ring, 0, 9), 0u);
    EXPECT_TRUE(*ring.release(0));
    EXPECT_EQ(ring.released(), 1u);
  }
}

TEST(InputRing, a_whole_hand_over_is_read_in_place_and_held_until_release) {  // IR-2, IR-3
  InputRing ring(spec_of(2));
  BufferPool pool(256, 1);
  const ArrivalPlan arrival = arrival_of(0, {4});
  ASSERT_FALSE(*ring.expect(arrival, step));
  Buffer buffer = pool.acquire();
  ASSERT_TRUE(*ring.handed_over(0, handed(buffer, arrival, 0)));
  EXPECT_EQ(ring.open(0)->tensor.raw(), buffer.data());
  EXPECT_EQ(open_and_check(ring, 0, 4), 0u);
  buffer.reset();
  EXPECT_EQ(pool.available(), 0u);
  EXPECT_NE(ring.expected(0), nullptr);
  ASSERT_TRUE(*ring.release(0));
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_EQ(ring.expected(0), nullptr);
}

TEST(InputRing, neighbouring_rows_of_one_buffer_are_read_in_place_in_whatever_order_they_came) {  // IR-2
  InputRing ring(spec_of(1));
  BufferPool pool(256, 1);
  const ArrivalPlan arrival = arrival_of(0, {4, 2});
  const Buffer buffer = pool.acquire();
  const std::size_t first = 2 * ring.spec().row_bytes();  // offset in a larger tensor
  ASSERT_FALSE(*ring.expect(arrival, step));
  ASSERT_FALSE(*ring.handed_over(0, handed(buffer, arrival, 1, first + 4 * ring.spec().row_bytes())));
  ASSERT_TRUE(*ring.handed_over(0, handed(buffer, arrival, 0, first)));
  EXPECT_EQ(ring.open(0)->tensor.raw(), buffer.data() + first);
  EXPECT_EQ(open_and_check(ring, 0, 6), 0u);
}

TEST(InputRing, neighbouring_rows_of_two_memory_spaces_are_gathered) {  // IR-2
  constexpr std::size_t block_bytes = 256;
  AlignedMemory memory(2 * block_bytes);
  FixedMemory left(memory.data()), right(memory.data() + block_bytes);
  BufferPool left_pool(block_bytes, 1, {}, left), right_pool(block_bytes, 1, {}, right);
  const ArrivalPlan arrival = arrival_of(0, {4, 2});
  InputRing ring(spec_of(1));
  const std::size_t last_rows = block_bytes - 4 * ring.spec().row_bytes();
  ASSERT_FALSE(*ring.expect(arrival, step));
  ASSERT_FALSE(*ring.handed_over(0, handed(left_pool.acquire(), arrival, 0, last_rows)));
  ASSERT_TRUE(*ring.handed_over(0, handed(right_pool.acquire(), arrival, 1)));
  EXPECT_EQ(open_and_check(ring, 0, 6), 2u);
}

TEST(InputRing, hand_overs_of_several_buffers_and_writes_are_gathered_in_the_slot) {  // IR-1, IR-2
  for (std::uint32_t remote = 0; remote <= 3; ++remote) {                             // 3: none
    InputRing ring(spec_of(1));
    const Peers peers(ring);
    BufferPool pool(256, 3);
    const ArrivalPlan arrival = arrival_of(0, {2, 3, 1});
    bool complete = *ring.expect(arrival, step);
    for (std::uint32_t index = 0; index < 3; ++index) {
      EXPECT_FALSE(complete);
      complete = index == remote ? peers.land_piece(arrival, index)
                                 : *ring.handed_over(0, handed(pool.acquire(), arrival, index));
    }
    EXPECT_TRUE(complete);
    EXPECT_EQ(open_and_check(ring, 0, 6), remote == 3 ? 3u : 2u);
    ASSERT_TRUE(*ring.release(0));
    EXPECT_EQ(pool.available(), 3u);
  }
}

TEST(InputRing, a_header_that_does_not_describe_its_piece_is_an_error) {  // LY-3
  InputRing ring(spec_of(1));
  const Peers peers(ring);
  ArrivalPlan arrival = arrival_of(0, {2, 3});
  ASSERT_FALSE(*ring.expect(arrival, step));
  peers.land_piece(arrival, 0);
  arrival.pieces[1].sender = ReplicaIndex(7);  // replica 7 has written instead of replica 1
  ASSERT_TRUE(peers.land_piece(arrival, 1));
  const auto opened = ring.open(0);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::corrupt);
  EXPECT_NE(opened.error().message.find("source replica is 7, expected 1"), std::string::npos)
      << opened.error().message;
}

TEST(InputRing, every_field_of_a_header_has_to_be_that_of_the_ring_and_of_its_work_item) {  // LY-3
  const std::vector<std::pair<std::string, std::function<void(PieceInfo&)>>> changes{
      {"epoch is 5, expected 6", [](PieceInfo& piece) { piece.epoch = Epoch(5); }},
      {"edge is 3, expected 4", [](PieceInfo& piece) { piece.edge = EdgeId(3); }},
      {"sequence is 2, expected 0", [](PieceInfo& piece) { piece.seq = 2; }},
      {"step is 12, expected 11", [](PieceInfo& piece) { piece.step = StepId(12); }},
      {"row offset is 0, expected 2", [](PieceInfo& piece) { piece.row_offset = 0; }},
      {"rows is 2, expected 3", [](PieceInfo& piece) { piece.rows = 2; }},
      {"row bytes is 4, expected 8", [](PieceInfo& piece) { piece.row_bytes = 4; }},
      {"dtype is 1, expected 0", [](PieceInfo& piece) { piece.dtype = DType::bf16; }},
      {"place is 1, expected 0", [](PieceInfo& piece) { piece.place = SlotMemory::device; }},
  };
  for (const auto& [text, change] : changes) {
    InputRing ring(spec_of(2));
    const Peers peers(ring);
    const ArrivalPlan arrival = arrival_of(0, {2, 3});
    ASSERT_FALSE(*ring.expect(arrival, step));
    peers.land_piece(arrival, 0);
    ASSERT_TRUE(peers.land_piece(arrival, 1));
    PieceInfo info = peers.info_of(arrival, 1, SlotMemory::host);
    change(info);
    const PieceHeader header = make_header(info);
    std::memcpy(ring.memory() + ring.layout().header_offset(0, 1), &header, sizeof header);
    const auto opened = ring.open(0);
    ASSERT_FALSE(opened) << text;
    EXPECT_NE(opened.error().message.find(text), std::string::npos) << opened.error().message;
  }
}

TEST(InputRing, more_writes_than_expected_are_an_error_that_names_the_sequence) {
  InputRing ring(spec_of(1));
  const Peers peers(ring);
  const ArrivalPlan arrival = arrival_of(0, {2});
  ASSERT_FALSE(*ring.expect(arrival, step));
  ASSERT_TRUE(peers.land_piece(arrival, 0));
  std::uint64_t sequence = 9;
  const auto excess = ring.landed(pack({EdgeId(9), 0, 0}), sequence);
  ASSERT_FALSE(excess);
  EXPECT_EQ(excess.error().code, ErrorCode::corrupt);
  EXPECT_NE(excess.error().message.find("sequence 0"), std::string::npos);
}

TEST(InputRing, a_hand_over_beyond_the_window_is_refused) {
  InputRing ring(spec_of(1));
  BufferPool pool(256, 1);
  const ArrivalPlan arrival = arrival_of(1, {2});
  ASSERT_FALSE(*ring.expect(arrival, step));
  EXPECT_EQ(ring.handed_over(1, handed(pool.acquire(), arrival, 0)).error().code, ErrorCode::internal);
}

TEST(InputRing, tokens_may_run_ahead_of_the_window_and_are_counted_when_they_enter_it) {
  InputRing ring(spec_of(2));
  const Peers peers(ring);
  for (std::uint64_t sequence = 0; sequence < 7; ++sequence) {
    ASSERT_FALSE(*ring.expect(arrival_of(sequence, {2, 1}), step));
  }
  for (std::uint64_t sequence = 0; sequence < 7; ++sequence) {
    EXPECT_FALSE(peers.land_piece(arrival_of(sequence, {2, 1}), 1));
    EXPECT_TRUE(peers.land_piece(arrival_of(sequence, {2, 1}), 0));
    EXPECT_EQ(open_and_check(ring, sequence, 3), 0u);
    EXPECT_TRUE(*ring.release(sequence));
  }
}

TEST(InputRing, a_sequence_without_pieces_is_complete_with_its_work_item_also_beyond_the_window) {
  InputRing ring(spec_of(1));
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    EXPECT_TRUE(*ring.expect(arrival_of(sequence, {}), step)) << sequence;
  }
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    EXPECT_EQ(ring.open(sequence)->tensor.shape().rows(), 0);
    EXPECT_TRUE(*ring.release(sequence));
  }
}

TEST(InputRing, credits_count_the_released_prefix_whatever_the_order_of_releases) {  // IR-3
  InputRing ring(spec_of(3));
  const Peers peers(ring);
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    ASSERT_FALSE(*ring.expect(arrival_of(sequence, {1}), step));
    ASSERT_TRUE(peers.land_piece(arrival_of(sequence, {1}), 0));
  }
  EXPECT_FALSE(*ring.release(2));
  EXPECT_FALSE(*ring.release(1));
  EXPECT_EQ(ring.released(), 0u);
  EXPECT_TRUE(*ring.release(0));
  EXPECT_EQ(ring.released(), 3u);
  EXPECT_FALSE(ring.release(0).ok());
}

TEST(InputRing, a_sequence_cannot_be_released_before_it_is_whole) {
  InputRing ring(spec_of(1));
  ASSERT_FALSE(*ring.expect(arrival_of(0, {1}), step));
  EXPECT_EQ(ring.release(0).error().code, ErrorCode::internal);
}

TEST(InputRing, sizes_beyond_the_limits_of_the_transport_are_refused) {
  EXPECT_THROW(InputRing{spec_of(0)}, JobError);
  EXPECT_THROW(InputRing{spec_of(max_immediate_slots + 1)}, JobError);
}

}  // namespace
}  // namespace maestro
