// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives on this machine's devices, with a thread per rank. All values are small integers: their sums are
// exact in any order (NC-3).
#include "runtime/collective/cuda/nccl_communicator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <thread>

#include "runtime/collective/rank_part.hpp"
#include "runtime/collective/reduction_round.hpp"

namespace maestro {
namespace {

/// Returns why tests that need `wanted` devices are skipped; empty if they can run.
std::string missing_devices(int wanted) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(result);
  if (devices >= wanted) return {};
  return std::to_string(wanted) + " CUDA devices are needed, there are " + std::to_string(devices);
}

int ranks_here() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? std::min(devices, 4) : 0;
}

void must(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A tensor on the current device.
class OnDevice {
 public:
  OnDevice(std::int64_t rows, std::int64_t columns, const std::vector<float>& values = {})
      : shape_{rows, columns}, values_(values) {
    values_.resize(static_cast<std::size_t>(rows * columns), -1.0f);
    must(memory_.reserve(values_.size() * sizeof(float) + 1));
    must(cudaMemcpy(memory_.data(), values_.data(), values_.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  [[nodiscard]] Tensor tensor() const { return {memory_.data(), DType::f32, shape_}; }
  [[nodiscard]] std::span<float> span() const { return tensor().span<float>(); }
  /// Returns the values after all work of the device is done.
  [[nodiscard]] std::vector<float> values() {
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(values_.data(), memory_.data(), values_.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return values_;
  }

 private:
  DeviceMemory memory_;
  Shape shape_;
  std::vector<float> values_;
};

using Work = std::function<void(Communicator&, cudaStream_t)>;

/// Runs `work` on every rank of a new group. Returns the texts of their exceptions, by rank.
std::vector<std::string> on_devices(int ranks, const Work& work, const std::shared_ptr<AbortReason>& reason) {
  const ncclUniqueId id = make_nccl_id();
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        must(cudaSetDevice(rank));
        const Stream stream;
        NcclCommunicator communicator({.id = id, .size = ranks, .rank = rank, .stream = stream.get(), .abort = reason});
        work(communicator, stream.get());
      } catch (const std::exception& error) {
        reason->set(error.what());
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> on_devices(int ranks, const std::function<void(Communicator&)>& work) {
  const Work alone = [&work](Communicator& rank, cudaStream_t /*stream*/) { work(rank); };
  return on_devices(ranks, alone, std::make_shared<AbortReason>());
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

std::vector<float> numbers(std::int64_t count, std::int64_t from) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from + static_cast<std::int64_t>(i));
  return values;
}

class OnDevices : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = missing_devices(1);
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(OnDevices, sums_and_maxima_reach_every_rank) {
  expect_no_errors(on_devices(ranks_here(), [](Communicator& rank) {
    const std::int64_t size = rank.size();
    OnDevice sums(1, 1000, numbers(1000, rank.rank()));
    rank.all_reduce_sum(sums.span());
    OnDevice maxima(1, 1000, numbers(1000, -rank.rank()));
    rank.all_reduce_max(maxima.span());
    rank.all_reduce_sum({});
    const std::vector<float> added = sums.values(), highest = maxima.values();
    for (std::int64_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(added[static_cast<std::size_t>(i)], static_cast<float>(size * i + size * (size - 1) / 2));
      EXPECT_EQ(highest[static_cast<std::size_t>(i)], static_cast<float>(i));
    }
  }));
}

void check_rows(std::int64_t total) {
  expect_no_errors(on_devices(ranks_here(), [&](Communicator& rank) {
    constexpr std::int64_t columns = 5;
    const RankPart own = rank_part(total, rank);
    const std::vector<float> expected = numbers(total * columns, 1);
    const OnDevice part(own.count, columns, numbers(own.count * columns, 1 + own.first * columns));
    OnDevice whole(total, columns);
    rank.all_gather_rows(part.tensor(), whole.tensor());
    OnDevice sums(own.count, columns);
    rank.reduce_scatter_rows(whole.tensor(), sums.tensor());  // result of work that was just queued
    EXPECT_EQ(whole.values(), expected);
    rank.all_gather_rows(whole.tensor().row_slice(own.first, own.count), whole.tensor());
    EXPECT_EQ(whole.values(), expected);
    std::vector<float> added = numbers(own.count * columns, 1 + own.first * columns);
    for (float& value : added) value *= static_cast<float>(rank.size());
    EXPECT_EQ(sums.values(), added);
  }));
}

TEST_F(OnDevices, even_parts_are_gathered_and_scattered) {
  check_rows(3 * ranks_here());
}

TEST_F(OnDevices, uneven_and_empty_parts_are_gathered_and_scattered) {
  check_rows(3 * ranks_here() + 1);
  check_rows(1);
  check_rows(0);
}

TEST_F(OnDevices, shards_hold_the_sums_and_come_together) {
  for (const std::int64_t count : {0, 1, 64 * 4, 1000}) {  // none, a single shard, equal shards, a shorter last shard
    expect_no_errors(on_devices(ranks_here(), [&](Communicator& rank) {
      OnDevice values(1, count, numbers(count, rank.rank()));
      const std::span<float> span(values.tensor().data<float>(), static_cast<std::size_t>(count));
      rank.reduce_to_shards(span);
      const auto size = static_cast<std::size_t>(rank.size());
      const ShardRange own = shard_range(span.size(), size, static_cast<std::size_t>(rank.rank()));
      const auto sum_at = [&](std::size_t i) { return static_cast<float>(size * i + size * (size - 1) / 2); };
      const std::vector<float> reduced = values.values();
      for (std::size_t i = own.first; i < own.first + own.count; ++i) EXPECT_EQ(reduced[i], sum_at(i));
      rank.gather_shards(span);
      const std::vector<float> whole = values.values();
      for (std::size_t i = 0; i < span.size(); ++i) EXPECT_EQ(whole[i], sum_at(i));
    }));
  }
}

TEST_F(OnDevices, blocks_go_from_rows_to_columns) {
  expect_no_errors(on_devices(ranks_here(), [](Communicator& rank) {
    const std::int64_t size = rank.size(), columns = 2 * size;
    const OnDevice own(3, columns, numbers(3 * columns, 1 + rank.rank() * 3 * columns));
    OnDevice received(3 * size, 4);  // no block covers the last two columns
    std::vector<BlockTransfer> sends, receives;
    for (std::int64_t peer = 0; peer < size; ++peer) {
      sends.push_back({peer, {0, 3, 2 * peer, 2}});
      receives.push_back({peer, {3 * peer, 3, 0, 2}});
    }
    rank.exchange(own.tensor(), sends, received.tensor(), receives);
    const std::vector<float> values = received.values();
    for (std::int64_t row = 0; row < 3 * size; ++row) {
      for (std::int64_t column = 0; column < 4; ++column) {
        const std::int64_t expected = column < 2 ? 1 + row * columns + 2 * rank.rank() + column : -1;
        EXPECT_EQ(values[static_cast<std::size_t>(row * 4 + column)], static_cast<float>(expected));
      }
    }
  }));
}

TEST_F(OnDevices, whole_rows_go_in_the_order_of_their_blocks) {
  expect_no_errors(on_devices(ranks_here(), [](Communicator& rank) {
    const std::int64_t size = rank.size();
    const std::int64_t next = (rank.rank() + 1) % size, previous = (rank.rank() + size - 1) % size;
    const OnDevice own(3, 2, numbers(6, rank.rank() * 6));
    OnDevice received(4, 2);
    const std::vector<BlockTransfer> sends = {{next, {1, 2, 0, 2}}, {next, {0, 0, 0, 2}}, {next, {0, 1, 0, 2}}};
    const std::vector<BlockTransfer> receives = {
        {previous, {0, 2, 0, 2}}, {previous, {0, 0, 0, 2}}, {previous, {3, 1, 0, 2}}};
    rank.exchange(own.tensor(), sends, received.tensor(), receives);
    std::vector<float> expected = numbers(4, previous * 6 + 2);
    const std::vector<float> last = numbers(2, previous * 6);
    expected.insert(expected.end(), {-1.0f, -1.0f, last[0], last[1]});
    EXPECT_EQ(received.values(), expected);
  }));
}

TEST_F(OnDevices, abort_ends_what_is_queued_and_calls_to_come) {  // CM-2, NC-1, NC-2, NQ-1, NQ-2
  const std::string missing = missing_devices(2);
  if (!missing.empty()) GTEST_SKIP() << missing;
  const auto reason = std::make_shared<AbortReason>();
  std::promise<void> queued;
  const std::vector<std::string> errors = on_devices(
      2,
      [&](Communicator& rank, cudaStream_t stream) {
        OnDevice values(1, 100);
        rank.all_reduce_sum(values.span());  // NCCL connects the ranks
        if (rank.rank() == 1) {              // never calls the sum that the other has queued
          queued.get_future().wait();
          return rank.abort("the disk is full");
        }
        rank.all_reduce_sum(values.span());
        EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
        EXPECT_EQ(rank.failure(), "");
        queued.set_value();
        must(cudaStreamSynchronize(stream));
        EXPECT_EQ(rank.failure(), "the disk is full");
        rank.all_reduce_sum(values.span());
      },
      reason);
  EXPECT_EQ(errors[0], "all_reduce_sum on rank 0 of 2: the group was aborted: the disk is full");
  EXPECT_EQ(errors[1], "");
}

TEST_F(OnDevices, abort_ends_a_rank_that_waits_for_the_others_to_join) {  // NQ-2
  const auto reason = std::make_shared<AbortReason>();
  const ncclUniqueId id = make_nccl_id();
  std::string error;
  std::thread first([&] {
    try {
      must(cudaSetDevice(0));
      const Stream stream;
      NcclCommunicator({.id = id, .size = 2, .rank = 0, .stream = stream.get(), .abort = reason});
    } catch (const CommunicatorAborted& aborted) {
      error = aborted.what();
    }
  });
  reason->set("the other has failed");
  first.join();
  EXPECT_EQ(error, "ncclCommInitRankConfig on rank 0 of 2: the group was aborted: the other has failed");
}

TEST_F(OnDevices, a_part_that_is_cut_in_another_way_is_refused) {  // NC-4
  const std::vector<std::string> errors = on_devices(1, [](Communicator& rank) {
    const OnDevice part(2, 3), whole(3, 3);
    rank.all_gather_rows(part.tensor(), whole.tensor());
  });
  EXPECT_EQ(errors[0], "all_gather_rows: rank 0 of 1 has a part of 2 rows; its part of 3 rows is 3");
}

TEST_F(OnDevices, a_call_that_is_wrong_by_itself_is_named) {  // NC-4
  const std::vector<std::string> errors = on_devices(1, [](Communicator& rank) {
    const OnDevice part(1, 3), whole(1, 4);
    EXPECT_THROW(rank.all_gather_rows(part.tensor(), whole.tensor()), std::logic_error);
    rank.all_reduce_sum({});
  });
  EXPECT_EQ(errors[0],
            "all_reduce_sum on rank 0 of 1: the group was aborted: all_gather_rows: rank 0 goes from 3 columns to 4");
}

TEST(NcclCommunicator, a_rank_outside_its_group_is_refused) {
  EXPECT_THROW(NcclCommunicator({.id = {}, .size = 2, .rank = 2}), std::invalid_argument);
}

TEST(NcclCommunicator, an_error_names_the_call_and_the_rank_and_aborts_the_group) {
  if (missing_devices(1).empty()) GTEST_SKIP() << "the error is that there is no CUDA device, and there is one";
  const auto reason = std::make_shared<AbortReason>();
  try {
    NcclCommunicator({.id = {}, .size = 2, .rank = 1, .abort = reason});
    FAIL() << "there is no device";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("cuda") && text.find(" on rank 1 of 2: ") != std::string::npos) << text;
    EXPECT_EQ(reason->why(), text);
  }
}

}  // namespace
}  // namespace maestro
