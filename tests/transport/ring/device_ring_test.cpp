// SPDX-License-Identifier: Apache-2.0
// Rings whose slots have a second payload in device memory.
#include <random>

#include "tests/support/apart_memory.hpp"
#include "tests/transport/ring/ring_peers.hpp"

namespace maestro {
namespace {

using namespace testing;

/// A ring whose slots have a second payload, in memory that the test treats as a device's.
class DeviceRing : public ::testing::Test {
 protected:
  enum class Way { to_host, to_device, whole };
  DeviceRing() {
    InputRingSpec spec = spec_of(2, 24);
    spec.device_ring = 10;
    spec.device = &apart_;
    ring_ = std::make_unique<InputRing>(spec);
  }
  /// Writes all of a piece, header last. Returns true if it completed its sequence.
  bool land(const ArrivalPlan& arrival, std::uint32_t index, Way way) {
    const Peers peers(*ring_);
    if (way == Way::to_host) return peers.land_piece(arrival, index);
    const std::vector<float> values =
        peers.rows_of(arrival.sequence, Peers::first_row(arrival, index), arrival.pieces[index].rows);
    if (!values.empty()) {
      std::memcpy(ring_->device_memory() + ring_->layout().device_offset(slot(arrival), byte_of(arrival, index)),
                  values.data(), values.size() * sizeof(float));
    }
    write_header(arrival, index, SlotMemory::device);
    if (way == Way::whole) {
      const Result<bool> complete = land_whole(arrival.sequence, index);
      EXPECT_TRUE(complete) << complete.error().message;
      return complete && *complete;
    }
    bool complete = false;
    for (std::size_t write = 0; write < writes_per_piece(values.size() * sizeof(float), 24); ++write) {
      complete = peers.land(arrival.sequence);
    }
    return complete;
  }
  Result<bool> land_whole(std::uint64_t sequence, std::uint32_t index) {
    std::uint64_t named = ~std::uint64_t{0};
    const std::uint32_t in_slot = ring_->layout().slot_of(sequence);
    Result<bool> complete = ring_->landed(pack({EdgeId(10), in_slot, static_cast<std::uint16_t>(index)}), named);
    EXPECT_EQ(named, sequence);
    return complete;
  }
  void write_header(const ArrivalPlan& arrival, std::uint32_t index, SlotMemory place) {
    const PieceInfo info = Peers(*ring_).info_of(arrival, index, place);
    const PieceHeader header = make_header(info);
    std::memcpy(ring_->memory() + ring_->layout().header_offset(slot(arrival), index), &header, sizeof header);
  }
  [[nodiscard]] std::uint32_t slot(const ArrivalPlan& arrival) const {
    return ring_->layout().slot_of(arrival.sequence);
  }
  [[nodiscard]] std::size_t byte_of(const ArrivalPlan& arrival, std::uint32_t index) const {
    return static_cast<std::size_t>(Peers::first_row(arrival, index)) * ring_->spec().row_bytes();
  }
  /// Checks the memory of a complete sequence's rows, and the number of copies.
  void check(std::uint64_t sequence, const MemorySpace& where, std::size_t copies, bool from_host = true) {
    EXPECT_EQ(open_and_check(*ring_, sequence, 6), copies);
    const Result<ArrivedTensor> arrived = ring_->open(sequence);
    EXPECT_EQ(arrived->space, &where);
    for (const ArrivedTensor::Copy& copy : arrived->copies) {
      EXPECT_EQ(copy.to_host, where.host());
      EXPECT_EQ(copy.from_host, from_host);
    }
  }

  testing::ApartMemory apart_;
  std::unique_ptr<InputRing> ring_;
};

TEST_F(DeviceRing, what_came_to_one_payload_is_read_there) {  // IR-2, IR-4, LY-4
  for (const Way way : {Way::to_host, Way::to_device, Way::whole}) {
    const auto sequence = static_cast<std::uint64_t>(way);
    const ArrivalPlan arrival = arrival_of(sequence, {2, 0, 4});
    ASSERT_FALSE(*ring_->expect(arrival, step));
    for (const std::uint32_t index : {2u, 0u, 1u}) EXPECT_EQ(land(arrival, index, way), index == 1);
    check(sequence, way == Way::to_host ? host_memory() : static_cast<const MemorySpace&>(apart_), 0);
    EXPECT_TRUE(*ring_->release(sequence));
  }
}

TEST_F(DeviceRing, what_came_by_several_ways_is_gathered_on_the_device) {  // IR-1, IR-2
  BufferPool host_buffers(256, 1);
  BufferPool device_buffers(256, 1, {}, apart_);
  std::uint64_t sequence = 0;
  const auto arrive = [&](std::uint32_t index, bool from_host, const std::function<bool(const ArrivalPlan&)>& other) {
    const ArrivalPlan arrival = arrival_of(sequence, {2, 3, 1});
    ASSERT_FALSE(*ring_->expect(arrival, step));
    for (std::uint32_t piece = 0; piece < 3; ++piece) {
      const bool complete = piece == index ? other(arrival) : land(arrival, piece, Way::whole);
      EXPECT_EQ(complete, piece == 2);
    }
    check(sequence, apart_, 1, from_host);
    ASSERT_TRUE(*ring_->release(sequence++));
  };
  for (std::uint32_t index = 0; index < 3; ++index) {
    arrive(index, true, [&](const ArrivalPlan& arrival) { return land(arrival, index, Way::to_host); });
    for (BufferPool* pool : {&host_buffers, &device_buffers}) {
      arrive(index, pool == &host_buffers, [&](const ArrivalPlan& arrival) {
        return *ring_->handed_over(arrival.sequence, handed(pool->acquire(), arrival, index));
      });
    }
  }
}

TEST_F(DeviceRing, rows_of_several_device_buffers_are_gathered_in_the_readers_memory_which_is_used_again) {  // IR-2
  InputRingSpec spec = spec_of(2);
  spec.reader = &apart_;
  ring_ = std::make_unique<InputRing>(spec);
  BufferPool host_buffers(256, 3);
  BufferPool device_buffers(256, 3, {}, apart_);
  const std::size_t before = apart_.blocks();
  const auto arrive = [&](std::uint64_t sequence, const std::vector<BufferPool*>& pools) {
    const ArrivalPlan arrival = arrival_of(sequence, {2, 3, 1});
    ASSERT_FALSE(*ring_->expect(arrival, step));
    for (std::uint32_t piece = 0; piece < 3; ++piece) {
      EXPECT_EQ(*ring_->handed_over(sequence, handed(pools[piece]->acquire(), arrival, piece)), piece == 2);
    }
  };
  BufferPool* const host = &host_buffers;
  BufferPool* const device = &device_buffers;
  arrive(0, {host, host, host});
  check(0, host_memory(), 3);
  EXPECT_EQ(apart_.blocks(), before);
  ASSERT_TRUE(*ring_->release(0));

  arrive(1, {device, device, device});
  check(1, apart_, 3, false);
  check(1, apart_, 3, false);  // opened again for the backward pass: the same memory
  EXPECT_EQ(apart_.blocks(), before + 1);
  ASSERT_TRUE(*ring_->release(1));

  arrive(2, {host, device, host});
  EXPECT_EQ(open_and_check(*ring_, 2, 6), 3u);
  EXPECT_EQ(ring_->open(2)->space, &apart_);
  EXPECT_EQ(apart_.blocks(), before + 1);
  ASSERT_TRUE(*ring_->release(2));
}

TEST_F(DeviceRing, whole_pieces_may_come_before_the_token_and_in_any_order) {  // IR-4, CC-3
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::uint64_t sequence = seed - 1;
    const ArrivalPlan arrival = arrival_of(sequence, {2, 3, 1});
    std::vector<std::function<bool()>> events;
    for (std::uint32_t index = 0; index < 3; ++index) {
      const Way way = random() % 3 == 0 ? Way::to_host : Way::whole;
      events.push_back([&, index, way] { return land(arrival, index, way); });
    }
    events.push_back([&] { return *ring_->expect(arrival, step); });
    std::shuffle(events.begin(), events.end(), random);
    for (std::size_t at = 0; at < events.size(); ++at) EXPECT_EQ(events[at](), at + 1 == events.size());
    open_and_check(*ring_, sequence, 6);
    ASSERT_TRUE(*ring_->release(sequence));
  }
}

TEST_F(DeviceRing, a_whole_piece_that_comes_twice_or_that_nobody_expects_is_an_error) {  // IR-4
  const ArrivalPlan arrival = arrival_of(0, {2, 3});
  ASSERT_FALSE(*ring_->expect(arrival, step));
  ASSERT_FALSE(*land_whole(0, 1));
  for (const std::uint32_t index : {1u, 2u}) {
    const Result<bool> landed = land_whole(0, index);
    ASSERT_FALSE(landed);
    EXPECT_EQ(landed.error().code, ErrorCode::corrupt);
    EXPECT_NE(landed.error().message.find("piece " + std::to_string(index) + " of sequence 0"), std::string::npos);
  }
}

TEST_F(DeviceRing, a_header_has_to_name_the_place_by_which_its_piece_came) {  // LY-3, IR-4
  const ArrivalPlan arrival = arrival_of(0, {6});
  ASSERT_FALSE(*ring_->expect(arrival, step));
  write_header(arrival, 0, SlotMemory::host);
  ASSERT_TRUE(*land_whole(0, 0));
  EXPECT_NE(ring_->open(0).error().message.find("place is 0, expected 1"), std::string::npos);
}

TEST_F(DeviceRing, without_memory_of_the_device_nothing_can_lie_there) {  // LY-4
  ring_->drop_device_memory();
  EXPECT_EQ(apart_.blocks(), 0u);
  const ArrivalPlan arrival = arrival_of(0, {6});
  ASSERT_FALSE(*ring_->expect(arrival, step));
  ASSERT_TRUE(land(arrival, 0, Way::to_host));
  write_header(arrival, 0, SlotMemory::device);
  EXPECT_NE(ring_->open(0).error().message.find("place is 1, expected 0"), std::string::npos);
}

}  // namespace
}  // namespace maestro
