#include "transport/input_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "tests/support/apart_memory.hpp"
#include "transport/chunk_plan.hpp"

namespace maestro {
namespace {

InputRingSpec spec_of(std::uint32_t slots, std::size_t chunk_bytes = 0) {
  InputRingSpec spec;
  spec.edge = EdgeId(4);
  spec.ring = 9;
  spec.slots = slots;
  spec.max_pieces = 3;
  spec.max_rows = 12;
  spec.columns = 2;
  spec.chunk_bytes = chunk_bytes;
  spec.epoch = Epoch(6);
  return spec;
}

constexpr StepId step(11);

/// Pieces of so many rows, from senders 0, 1, 2.
ArrivalPlan arrival_of(std::uint64_t sequence, const std::vector<std::int64_t>& rows) {
  ArrivalPlan arrival;
  arrival.edge = EdgeId(4);
  arrival.sequence = sequence;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    arrival.pieces.push_back({rows[at], ReplicaIndex(static_cast<std::uint32_t>(at))});
  }
  return arrival;
}

float value_at(std::uint64_t sequence, std::int64_t row, std::int64_t column) {
  return static_cast<float>(sequence * 1000 + static_cast<std::uint64_t>(row * 10 + column));
}

/// Plays the peers: writes into the ring's memory as RMA does, and lets each write land when the test says so.
class Peers {
 public:
  explicit Peers(InputRing& ring) : ring_(&ring) {}

  /// The writes of one piece, header first; each is done when called.
  std::vector<std::function<void()>> writes(const ArrivalPlan& arrival, std::uint32_t index) const {
    const InputRingSpec& spec = ring_->spec();
    const std::int64_t first = first_row(arrival, index);
    const ArrivalPiece& piece = arrival.pieces[index];
    const std::uint32_t slot = ring_->layout().slot_of(arrival.sequence);
    PieceInfo info{spec.epoch,
                   spec.edge,
                   arrival.sequence,
                   step,
                   piece.sender,
                   static_cast<std::uint64_t>(first),
                   static_cast<std::uint64_t>(piece.rows),
                   static_cast<std::uint32_t>(spec.row_bytes()),
                   spec.dtype};
    std::vector<std::function<void()>> made;
    made.push_back([this, info, slot, index] {
      const PieceHeader header = make_header(info);
      std::memcpy(ring_->memory() + ring_->layout().header_offset(slot, index), &header, sizeof header);
    });
    for (const Chunk chunk : ChunkPlan(info.payload_bytes(), spec.chunk_bytes)) {
      made.push_back([this, chunk, slot, first, sequence = arrival.sequence, rows = piece.rows] {
        const std::vector<float> values = rows_of(sequence, first, rows);
        const std::size_t offset = static_cast<std::size_t>(first) * ring_->spec().row_bytes() + chunk.offset;
        std::memcpy(ring_->memory() + ring_->layout().payload_offset(slot, offset),
                    reinterpret_cast<const std::byte*>(values.data()) + chunk.offset, chunk.bytes);
      });
    }
    return made;
  }
  /// Does and lands one write. True when it completed its sequence.
  bool land(std::uint64_t sequence, const std::function<void()>& write) const {
    write();
    return land(sequence);
  }
  bool land(std::uint64_t sequence) const {
    const Immediate where{EdgeId(ring_->spec().ring), ring_->layout().slot_of(sequence), wrap_sequence(sequence)};
    std::uint64_t named = ~std::uint64_t{0};
    const Result<bool> complete = ring_->landed(pack(where), named);
    EXPECT_TRUE(complete) << complete.error().message;
    EXPECT_EQ(named, sequence);
    return complete && *complete;
  }
  bool land_piece(const ArrivalPlan& arrival, std::uint32_t index) const {
    bool complete = false;
    for (const auto& write : writes(arrival, index)) complete = land(arrival.sequence, write);
    return complete;
  }
  static std::int64_t first_row(const ArrivalPlan& arrival, std::uint32_t index) {
    std::int64_t first = 0;
    for (std::uint32_t before = 0; before < index; ++before) first += arrival.pieces[before].rows;
    return first;
  }
  [[nodiscard]] std::vector<float> rows_of(std::uint64_t sequence, std::int64_t first, std::int64_t count) const {
    std::vector<float> values;
    for (std::int64_t row = first; row < first + count; ++row) {
      for (std::int64_t column = 0; column < ring_->spec().columns; ++column) {
        values.push_back(value_at(sequence, row, column));
      }
    }
    return values;
  }

 private:
  InputRing* ring_;
};

/// Opens a sequence, makes its copies and compares every row. Returns how many copies it took.
std::size_t open_and_check(InputRing& ring, std::uint64_t sequence, std::int64_t rows) {
  const Result<ArrivedTensor> arrived = ring.open(sequence);
  EXPECT_TRUE(arrived) << arrived.error().message;
  if (!arrived) return 0;
  for (const auto& copy : arrived->copies) std::memcpy(copy.to, copy.from, copy.bytes);
  const auto shape = Shape{rows, ring.spec().columns};
  EXPECT_EQ(arrived->tensor.shape(), shape);
  EXPECT_EQ(arrived->tensor.dtype(), DType::f32);
  const std::vector<float> wanted = Peers(ring).rows_of(sequence, 0, rows);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), arrived->tensor.data<float>()));
  return arrived->copies.size();
}

HandedRows handed(const Buffer& buffer, const ArrivalPlan& arrival, std::uint32_t index, std::size_t offset = 0) {
  const std::int64_t first = Peers::first_row(arrival, index);
  const std::int64_t rows = arrival.pieces[index].rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < 2; ++column) {
      const float value = value_at(arrival.sequence, first + row, column);
      std::memcpy(buffer.data() + offset + static_cast<std::size_t>(row * 2 + column) * sizeof(float), &value,
                  sizeof value);
    }
  }
  return {buffer, offset, index, first, rows};
}

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
  ASSERT_TRUE(*ring.release(0));
  EXPECT_EQ(pool.available(), 1u);
}

TEST(InputRing, neighbouring_rows_of_one_buffer_are_read_in_place_in_whatever_order_they_came) {  // IR-2
  InputRing ring(spec_of(1));
  BufferPool pool(256, 1);
  const ArrivalPlan arrival = arrival_of(0, {4, 2});
  const Buffer buffer = pool.acquire();
  const std::size_t first = 2 * ring.spec().row_bytes();  // of a larger tensor
  ASSERT_FALSE(*ring.expect(arrival, step));
  ASSERT_FALSE(*ring.handed_over(0, handed(buffer, arrival, 1, first + 4 * ring.spec().row_bytes())));
  ASSERT_TRUE(*ring.handed_over(0, handed(buffer, arrival, 0, first)));
  EXPECT_EQ(ring.open(0)->tensor.raw(), buffer.data() + first);
  EXPECT_EQ(open_and_check(ring, 0, 6), 0u);
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

/// A ring whose slots have a second payload, in memory that stands for a device's.
class DeviceRing : public ::testing::Test {
 protected:
  enum class Way { to_host, to_device, whole };
  DeviceRing() {
    InputRingSpec spec = spec_of(2, 24);
    spec.device_ring = 10;
    spec.device = &apart_;
    ring_ = std::make_unique<InputRing>(spec);
  }
  /// All of a piece, header last. True when it completed its sequence.
  bool land(const ArrivalPlan& arrival, std::uint32_t index, Way way) {
    const Peers peers(*ring_);
    if (way == Way::to_host) return peers.land_piece(arrival, index);
    const std::vector<float> values =
        peers.rows_of(arrival.sequence, Peers::first_row(arrival, index), arrival.pieces[index].rows);
    std::memcpy(ring_->device_memory() + ring_->layout().device_offset(slot(arrival), byte_of(arrival, index)),
                values.data(), values.size() * sizeof(float));
    write_header(arrival, index, PiecePlace::device);
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
  void write_header(const ArrivalPlan& arrival, std::uint32_t index, PiecePlace place) {
    const InputRingSpec& spec = ring_->spec();
    PieceInfo info{spec.epoch,
                   spec.edge,
                   arrival.sequence,
                   step,
                   arrival.pieces[index].sender,
                   static_cast<std::uint64_t>(Peers::first_row(arrival, index)),
                   static_cast<std::uint64_t>(arrival.pieces[index].rows),
                   static_cast<std::uint32_t>(spec.row_bytes()),
                   spec.dtype,
                   place};
    const PieceHeader header = make_header(info);
    std::memcpy(ring_->memory() + ring_->layout().header_offset(slot(arrival), index), &header, sizeof header);
  }
  [[nodiscard]] std::uint32_t slot(const ArrivalPlan& arrival) const {
    return ring_->layout().slot_of(arrival.sequence);
  }
  [[nodiscard]] std::size_t byte_of(const ArrivalPlan& arrival, std::uint32_t index) const {
    return static_cast<std::size_t>(Peers::first_row(arrival, index)) * ring_->spec().row_bytes();
  }
  /// Where the rows of a complete sequence are, after how many copies.
  void check(std::uint64_t sequence, const MemorySpace& where, std::size_t copies) {
    EXPECT_EQ(open_and_check(*ring_, sequence, 6), copies);
    const Result<ArrivedTensor> arrived = ring_->open(sequence);
    EXPECT_EQ(arrived->space, &where);
    for (const ArrivedTensor::Copy& copy : arrived->copies) EXPECT_EQ(copy.to_host, where.host());
  }

  testing::ApartMemory apart_;
  std::unique_ptr<InputRing> ring_;
};

TEST_F(DeviceRing, what_came_to_one_payload_is_read_there) {  // IR-2, IR-4, SL-4
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
  const auto arrive = [&](std::uint32_t index, const std::function<bool(const ArrivalPlan&)>& other) {
    const ArrivalPlan arrival = arrival_of(sequence, {2, 3, 1});
    ASSERT_FALSE(*ring_->expect(arrival, step));
    for (std::uint32_t piece = 0; piece < 3; ++piece) {
      const bool complete = piece == index ? other(arrival) : land(arrival, piece, Way::whole);
      EXPECT_EQ(complete, piece == 2);
    }
    check(sequence, apart_, 1);
    ASSERT_TRUE(*ring_->release(sequence++));
  };
  for (std::uint32_t index = 0; index < 3; ++index) {
    arrive(index, [&](const ArrivalPlan& arrival) { return land(arrival, index, Way::to_host); });
    for (BufferPool* pool : {&host_buffers, &device_buffers}) {
      arrive(index, [&](const ArrivalPlan& arrival) {
        return *ring_->handed_over(arrival.sequence, handed(pool->acquire(), arrival, index));
      });
    }
  }
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

TEST_F(DeviceRing, a_header_has_to_name_the_place_by_which_its_piece_came) {  // SL-3, IR-4
  const ArrivalPlan arrival = arrival_of(0, {6});
  ASSERT_FALSE(*ring_->expect(arrival, step));
  write_header(arrival, 0, PiecePlace::host);
  ASSERT_TRUE(*land_whole(0, 0));
  EXPECT_NE(ring_->open(0).error().message.find("place is 0, expected 1"), std::string::npos);
}

TEST_F(DeviceRing, without_memory_of_the_device_nothing_can_lie_there) {  // SL-4
  ring_->drop_device_memory();
  EXPECT_EQ(apart_.blocks(), 0u);
  const ArrivalPlan arrival = arrival_of(0, {6});
  ASSERT_FALSE(*ring_->expect(arrival, step));
  ASSERT_TRUE(land(arrival, 0, Way::to_host));
  write_header(arrival, 0, PiecePlace::device);
  EXPECT_NE(ring_->open(0).error().message.find("place is 1, expected 0"), std::string::npos);
}

TEST(InputRing, a_header_that_does_not_describe_its_piece_is_an_error) {  // SL-3
  InputRing ring(spec_of(1));
  const Peers peers(ring);
  ArrivalPlan arrival = arrival_of(0, {2, 3});
  ASSERT_FALSE(*ring.expect(arrival, step));
  peers.land_piece(arrival, 0);
  arrival.pieces[1].sender = ReplicaIndex(7);  // another replica has written where replica 1 should have
  ASSERT_TRUE(peers.land_piece(arrival, 1));
  const auto opened = ring.open(0);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::corrupt);
  EXPECT_NE(opened.error().message.find("source replica is 7, expected 1"), std::string::npos)
      << opened.error().message;
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
