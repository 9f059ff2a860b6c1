// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/piece_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "actors/services/imported_memories.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/support/apart_memory.hpp"
#include "transport/ring/input_ring.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t columns = 2;
constexpr std::size_t row_bytes = columns * sizeof(float);
constexpr std::int64_t most_rows = 12;
constexpr std::size_t chunk_bytes = 2 * row_bytes;
constexpr std::uint32_t slots = 3;
constexpr StepId step(7);

/// A device whose copies the test completes.
class CopyingDevice final : public Device {
 public:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
    std::function<void(const std::string&)> done;
  };
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const OperatorTable& ops() const override { return ops_; }
  void submit(Priority, std::function<void()> work) override { work(); }
  void stop() override {}
  void move(const std::byte* from, std::byte* to, std::size_t bytes,
            std::function<void(const std::string&)> done) override {
    copies.push_back({from, to, bytes, std::move(done)});
  }
  std::deque<Copy> copies;

 private:
  std::string name_ = "cuda:0";
  cpu::CpuOperatorTable ops_;
};

class SharedRing final : public ImportedMemory {
 public:
  explicit SharedRing(std::byte* data) : data_(data) {}
  [[nodiscard]] std::byte* data() const override { return data_; }

 private:
  std::byte* data_;
};

float value_at(std::uint64_t sequence, std::int64_t row, std::int64_t column) {
  return static_cast<float>(sequence * 1000 + static_cast<std::uint64_t>(row * 10 + column));
}

/// A sender whose copies and writes the test completes, and the ring that it sends to.
class PieceWriterTest : public ::testing::Test {
 protected:
  PieceWriterTest() {
    PieceWriterOptions options;
    options.epoch = Epoch(2);
    options.replica = ReplicaIndex(0);
    options.chunk_bytes = chunk_bytes;
    options.client = 3;
    options.device = &device_;
    options.write = [this](ProcessId, const WriteRequest& request) { writes_.push_back(request); };
    options.copied = [this](std::uint64_t cookie, const std::string& failure) { ended_.emplace_back(cookie, failure); };
    options.transferred = [this](const Transfer& transfer) { left_.push_back(transfer.piece.sequence); };
    writer_ = std::make_unique<PieceWriter>(std::move(options));
    staging_ =
        std::make_unique<BufferPool>(writer_->staging_block_bytes(most_rows * row_bytes), PieceWriter::staging_blocks);
    writer_->use_staging(staging_.get(), nullptr);

    InputRingSpec spec;
    spec.channel.edge = EdgeId(4);
    spec.ring = 9;
    spec.device_ring = 10;
    spec.slots = slots;
    spec.max_rows = most_rows;
    spec.columns = columns;
    spec.chunk_bytes = chunk_bytes;
    spec.epoch = Epoch(2);
    spec.device = &apart_;
    ring_ = std::make_unique<InputRing>(spec);
    target_.ring.ring = spec.ring;
    target_.ring.device_ring = spec.device_ring;
    target_.ring.device_region.key = device_key;
    target_.ring.slots = slots;
    target_.ring.payload_bytes = most_rows * row_bytes;
    target_.name = "teacher.hidden to student.teacher, replica 1";
    target_.method = SendMethod::in_chunks;
  }

  void by_ipc() {
    target_.method = SendMethod::shared;
    target_.place = SlotMemory::device;
    target_.shared = opened_.keep(std::make_unique<SharedRing>(ring_->device_memory()));
  }
  /// Announces a micro-batch with `rows` rows to the ring.
  void leave(std::uint64_t sequence, std::int64_t rows) {
    ArrivalPlan arrival;
    arrival.channel.edge = EdgeId(4);
    arrival.sequence = sequence;
    arrival.pieces.push_back({rows, ReplicaIndex(0)});
    ASSERT_TRUE(ring_->expect(arrival, step).ok());
    OutgoingPiece piece;
    piece.piece.channel.edge = EdgeId(4);
    piece.piece.sequence = sequence;
    piece.piece.rows = rows;
    piece.step = step;
    piece.buffer = pool_.acquire();
    piece.header_offset = most_rows * row_bytes;
    ASSERT_TRUE(piece.buffer);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        reinterpret_cast<float*>(piece.buffer.data())[row * columns + column] = value_at(sequence, row, column);
      }
    }
    writer_->leave(target_, source_, std::move(piece));
  }
  /// Completes the oldest copy and reports its end.
  void end_copy(const std::string& failure = {}) {
    const CopyingDevice::Copy copy = std::move(device_.copies.front());
    device_.copies.pop_front();
    std::memcpy(copy.to, copy.from, copy.bytes);
    copy.done(failure);
  }
  Status tell_copy() {
    const auto [cookie, failure] = ended_.front();
    ended_.pop_front();
    return writer_->copied(cookie, failure);
  }
  void copy_one() {
    end_copy();
    ASSERT_TRUE(tell_copy().ok());
  }
  /// Completes a pending write at the receiver and the sender. Returns whether it completed its sequence.
  bool end_write(std::size_t at = 0) {
    const WriteRequest request = writes_[at];
    writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(at));
    const bool to_device = request.remote.key == device_key;
    const std::byte* from = (source_.host || to_device ? pool_.memory() : staging_->memory()) + request.local_offset;
    std::memcpy((to_device ? ring_->device_memory() : ring_->memory()) + request.remote_offset, from, request.bytes);
    std::uint64_t sequence = 0;
    const Result<bool> complete = ring_->landed(*request.immediate, sequence);
    EXPECT_TRUE(complete) << complete.error().message;
    writer_->write_finished(request.cookie);
    return complete && *complete;
  }
  void check_rows(std::uint64_t sequence, std::int64_t rows, const MemorySpace& where) {
    const Result<ArrivedTensor> arrived = ring_->open(sequence);
    ASSERT_TRUE(arrived) << arrived.error().message;
    EXPECT_TRUE(arrived->copies.empty());
    EXPECT_EQ(arrived->space, &where);
    ASSERT_EQ(arrived->tensor.shape(), (Shape{rows, columns}));
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        EXPECT_EQ(arrived->tensor.data<float>()[row * columns + column], value_at(sequence, row, column));
      }
    }
  }
  [[nodiscard]] std::size_t free_buffers() const { return pool_.available(); }

  static constexpr std::size_t buffers = 3;
  static constexpr std::uint64_t device_key = 77;
  ApartMemory apart_;
  ImportedMemories opened_;
  CopyingDevice device_;
  BufferPool pool_{most_rows * row_bytes + PieceWriter::header_bytes, buffers};
  std::unique_ptr<BufferPool> staging_;
  PieceSource source_{nullptr, row_bytes, DType::f32, false};
  PieceTarget target_;
  std::deque<WriteRequest> writes_;
  std::deque<std::pair<std::uint64_t, std::string>> ended_;  // completed copies that are not reported yet
  std::vector<std::uint64_t> left_;
  std::unique_ptr<InputRing> ring_;
  std::unique_ptr<PieceWriter> writer_;
};

TEST_F(PieceWriterTest, a_chunk_is_written_while_the_next_ones_are_copied) {  // WP-2
  leave(0, 6);                                                                // three chunks
  EXPECT_EQ(device_.copies.size(), 3U);
  EXPECT_TRUE(writes_.empty());
  copy_one();
  EXPECT_EQ(device_.copies.size(), 2U);
  ASSERT_EQ(writes_.size(), 2U);  // the header and the first chunk
  EXPECT_EQ(writes_[0].bytes, PieceWriter::header_bytes);
  EXPECT_EQ(writes_[1].bytes, chunk_bytes);
  copy_one();
  EXPECT_EQ(device_.copies.size(), 1U);
  EXPECT_EQ(writes_.size(), 3U);
}

TEST_F(PieceWriterTest, a_piece_takes_the_time_until_its_last_write_has_ended) {
  const auto begin = std::chrono::steady_clock::now();
  leave(0, 4);
  leave(1, 1);
  while (!device_.copies.empty()) copy_one();
  while (writes_.size() > 1) end_write();
  ChannelTimes times;
  writer_->take_times(times);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times.begin()->first, Channel{EdgeId(4)});
  EXPECT_EQ(times.begin()->second.pieces, 1u) << "the other piece is on its way";
  end_write();
  writer_->take_times(times);
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(times.begin()->second.pieces, 2u);
  EXPECT_GT(times.begin()->second.sum_ms, 0);
  EXPECT_LE(times.begin()->second.sum_ms, 2 * passed.count());
  writer_->take_times(times);
  EXPECT_EQ(times.begin()->second.pieces, 2u) << "each piece counts once";
}

TEST_F(PieceWriterTest, copies_wait_for_blocks_whose_writes_have_not_ended) {  // WP-2
  leave(0, 12);                                                                // six chunks
  EXPECT_EQ(device_.copies.size(), PieceWriter::staging_blocks);
  while (!device_.copies.empty()) copy_one();
  EXPECT_EQ(writes_.size(), 1 + PieceWriter::staging_blocks);
  end_write(0);  // the header, which shares its block with the first chunk
  EXPECT_EQ(device_.copies.size(), 0U);
  end_write(0);
  EXPECT_EQ(device_.copies.size(), 1U);
  end_write(2);  // blocks become free in any order
  EXPECT_EQ(device_.copies.size(), 2U);
  EXPECT_EQ(staging_->available(), 0U);
}

TEST_F(PieceWriterTest, a_buffer_is_free_when_its_last_chunk_is_copied_and_not_when_it_is_written) {  // WP-1
  leave(0, 4);
  copy_one();
  EXPECT_EQ(free_buffers(), buffers - 1);
  copy_one();
  EXPECT_EQ(free_buffers(), buffers);
  EXPECT_EQ(writes_.size(), 3U);
}

TEST_F(PieceWriterTest, pieces_are_copied_in_the_order_in_which_they_left) {  // WP-2
  leave(1, 6);
  leave(0, 6);
  leave(2, 1);
  std::vector<const std::byte*> sources;
  while (!device_.copies.empty() || !writes_.empty()) {
    if (!device_.copies.empty()) {
      sources.push_back(device_.copies.front().from);
      copy_one();
    } else {
      end_write();
    }
  }
  EXPECT_EQ(sources.size(), 7U);
  const std::byte* const base = pool_.memory();
  std::vector<std::size_t> offsets;
  for (const std::byte* source : sources) offsets.push_back(static_cast<std::size_t>(source - base));
  EXPECT_TRUE(std::ranges::is_sorted(offsets));  // buffers are taken in address order
}

TEST_F(PieceWriterTest, whatever_ends_first_every_piece_arrives_whole_and_leaves_once) {  // WP-1, WP-2, WP-3
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    if (seed == 41) by_ipc();
    const std::vector<std::int64_t> rows = {static_cast<std::int64_t>(random() % (most_rows + 1)), 7, 0};
    const std::uint64_t first = (seed - 1) * slots;
    for (std::uint64_t at = 0; at < slots; ++at) leave(first + at, rows[at]);
    std::size_t complete = 0;
    while (!device_.copies.empty() || !ended_.empty() || !writes_.empty()) {
      const std::uint64_t choice = random() % 3;
      if (choice == 0 && !device_.copies.empty()) end_copy();
      if (choice == 1 && !ended_.empty()) (void)tell_copy();
      if (choice == 2 && !writes_.empty() && end_write(random() % writes_.size())) ++complete;
    }
    EXPECT_EQ(complete, slots);
    for (std::uint64_t at = 0; at < slots; ++at) {
      check_rows(first + at, rows[at], seed < 41 ? host_memory() : static_cast<MemorySpace&>(apart_));
      ASSERT_TRUE(ring_->release(first + at).ok());
    }
    EXPECT_EQ(left_.size(), seed * slots);
    EXPECT_EQ(free_buffers(), buffers);
    EXPECT_EQ(staging_->available(), PieceWriter::staging_blocks);
  }
}

TEST_F(PieceWriterTest, by_ipc_the_header_alone_is_written_and_only_when_the_rows_are_there) {  // WP-1, WP-3
  by_ipc();
  leave(0, 8);
  ASSERT_EQ(device_.copies.size(), 1U);  // a single copy of all rows
  end_copy();
  EXPECT_TRUE(writes_.empty());
  EXPECT_EQ(free_buffers(), buffers - 1);
  ASSERT_TRUE(tell_copy().ok());
  EXPECT_EQ(free_buffers(), buffers);
  ASSERT_EQ(writes_.size(), 1U);
  EXPECT_TRUE(end_write());
  EXPECT_EQ(left_, std::vector<std::uint64_t>{0});
  check_rows(0, 8, apart_);
}

TEST_F(PieceWriterTest, a_copy_that_fails_names_where_it_was_going_and_its_step) {
  for (const bool ipc : {false, true}) {
    if (ipc) by_ipc();
    leave(ipc ? 1 : 0, 2);
    end_copy("cuda:0: an illegal memory access was encountered");
    const Status told = tell_copy();
    ASSERT_FALSE(told.ok());
    EXPECT_EQ(told.error().message,
              "copying a piece from teacher.hidden to student.teacher, replica 1, step 7: cuda:0: an illegal memory "
              "access was encountered");
    EXPECT_TRUE(writes_.empty());
  }
}

TEST_F(PieceWriterTest, memory_that_is_let_go_of_is_copied_to_by_nobody_but_those_that_had_begun) {  // OM-1
  by_ipc();
  leave(0, 2);
  opened_.close_all();
  EXPECT_FALSE(target_.shared.expired());
  copy_one();
  EXPECT_TRUE(target_.shared.expired());
  EXPECT_TRUE(end_write());
  leave(1, 2);
  EXPECT_TRUE(device_.copies.empty());
  EXPECT_NE(tell_copy().error().message.find("step 7: the receiver's memory has been closed"), std::string::npos);
}

TEST_F(PieceWriterTest, a_copy_holds_its_memory_when_the_writer_is_gone) {
  leave(0, 2);
  writer_.reset();
  EXPECT_EQ(free_buffers(), buffers - 1);
  EXPECT_EQ(staging_->available(), PieceWriter::staging_blocks - 1);
  end_copy();
  EXPECT_EQ(free_buffers(), buffers);
  EXPECT_EQ(staging_->available(), PieceWriter::staging_blocks);
}

TEST_F(PieceWriterTest,
       of_a_pool_in_memory_of_the_processor_pieces_are_written_at_once_and_held_until_the_end) {  // WP-1
  target_.method = SendMethod::from_pool;
  source_.host = true;
  leave(0, 5);
  EXPECT_TRUE(device_.copies.empty());
  ASSERT_EQ(writes_.size(), 4U);
  while (writes_.size() > 1) EXPECT_FALSE(end_write(writes_.size() - 1));
  EXPECT_EQ(free_buffers(), buffers - 1);
  EXPECT_TRUE(end_write());
  EXPECT_EQ(free_buffers(), buffers);
  check_rows(0, 5, host_memory());
}

TEST_F(PieceWriterTest, from_device_to_device_rows_are_written_at_once_and_the_header_from_a_block) {  // WP-1, WP-2
  target_.method = SendMethod::from_pool;
  target_.place = SlotMemory::device;
  leave(0, 5);
  leave(1, 0);
  EXPECT_TRUE(device_.copies.empty());
  ASSERT_EQ(writes_.size(), 5U);  // three chunks with their header, and a header without chunks
  while (writes_.size() > 1) (void)end_write(writes_.size() - 1);
  EXPECT_EQ(free_buffers(), buffers - 1);
  EXPECT_TRUE(end_write());
  EXPECT_EQ(free_buffers(), buffers);
  EXPECT_EQ(staging_->available(), PieceWriter::staging_blocks);
  check_rows(0, 5, apart_);
}

}  // namespace
}  // namespace maestro::testing
