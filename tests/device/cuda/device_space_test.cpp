// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/device_space.hpp"

#include "runtime/core/result.hpp"
#include "tests/device/cuda/site.hpp"

namespace maestro::cuda {
namespace {

using DeviceSpaceTest = SiteTest;
using Bytes = std::vector<unsigned char>;

TEST_F(DeviceSpaceTest, memory_is_zero_at_first_and_holds_what_is_written) {
  const SpaceMemory block(*space_, 1000);
  EXPECT_FALSE(space_->host());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 256, 0u);
  EXPECT_EQ(bytes_of(block.data(), 1000), Bytes(1000, 0));
  const Bytes written(1000, 7);
  space_->write(block.data(), reinterpret_cast<const std::byte*>(written.data()), written.size());
  EXPECT_EQ(bytes_of(block.data(), 1000), written);
  space_->zero(block.data(), 10);
  EXPECT_EQ(bytes_of(block.data(), 11), (Bytes{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}));
}

TEST_F(DeviceSpaceTest, a_block_is_given_out_again_behind_the_work_that_still_uses_it) {  // DS-1
  constexpr std::size_t bytes = std::size_t{8} << 20;
  std::byte* const first = space_->allocate(bytes);
  for (int work = 1; work < 20; ++work) ASSERT_EQ(cudaMemsetAsync(first, work, bytes, stream()), cudaSuccess);
  space_->release(first, bytes);
  std::byte* const second = space_->allocate(bytes);
  EXPECT_EQ(second, first);
  work_->stream.synchronize();
  EXPECT_EQ(bytes_of(second, bytes), Bytes(bytes, 0));
  space_->release(second, bytes);
}

TEST_F(DeviceSpaceTest, what_is_released_is_kept_for_the_next_of_its_size) {
  for (int round = 0; round < 10; ++round) {
    const SpaceMemory a(*space_, 5000);
    const SpaceMemory b(*space_, std::size_t{3} << 20);
  }
  const SpaceFigures figures = space_->figures();
  EXPECT_EQ(figures.used_bytes, 0u);
  EXPECT_EQ(figures.reserved_bytes, BlockCache::rounded(5000) + BlockCache::rounded(std::size_t{3} << 20));
  EXPECT_EQ(figures.peak_bytes, figures.reserved_bytes);
}

TEST_F(DeviceSpaceTest, more_than_there_is_is_refused_with_figures_and_cached_blocks_are_given_up_for_it) {
  const SpaceMemory kept(*space_, 512);
  { const SpaceMemory cached(*space_, std::size_t{4} << 20); }
  EXPECT_GT(space_->figures().reserved_bytes, std::size_t{4} << 20);
  try {
    static_cast<void>(space_->allocate(std::size_t{1} << 50));
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find("cuda:0: no memory for 1073741824 MiB more"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(space_->figures().reserved_bytes, 512u);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);  // the refusal is reported once
}

TEST_F(DeviceSpaceTest, what_is_released_while_the_stream_is_captured_is_ordered_later) {  // DS-2
  constexpr std::size_t bytes = 4096;
  std::byte* const first = space_->allocate(bytes);
  ASSERT_EQ(cudaMemsetAsync(first, 3, bytes, stream()), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  space_->release(first, bytes);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  std::byte* const second = space_->allocate(bytes);
  EXPECT_EQ(second, first);
  work_->stream.synchronize();
  EXPECT_EQ(bytes_of(second, bytes), Bytes(bytes, 0));
  space_->release(second, bytes);
}

TEST_F(DeviceSpaceTest, host_memory_is_pinned_once_and_unpinned_once) {
  Bytes host(std::size_t{1} << 16);
  auto* const begin = reinterpret_cast<std::byte*>(host.data());
  space_->pin(begin, host.size());
  space_->pin(begin, host.size());
  space_->unpin(begin);
  space_->unpin(begin);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(DeviceSpaceTest, page_locked_memory_is_host_memory_that_devices_copy_to) {
  PinnedSpace pinned;
  const SpaceMemory device(*space_, 64);
  SpaceMemory host(pinned, 64);
  EXPECT_TRUE(pinned.host());
  std::memset(host.data(), 9, 64);
  ASSERT_EQ(cudaMemcpyAsync(device.data(), host.data(), 64, cudaMemcpyHostToDevice, stream()), cudaSuccess);
  work_->stream.synchronize();
  EXPECT_EQ(bytes_of(device.data(), 64), Bytes(64, 9));
  std::byte* const before = host.data();
  host.reset();
  const SpaceMemory again(pinned, 64);
  EXPECT_EQ(again.data(), before);
  EXPECT_EQ(std::to_integer<int>(again.data()[63]), 0);
  EXPECT_EQ(pinned.figures().reserved_bytes, BlockCache::rounded(64));
}

}  // namespace
}  // namespace maestro::cuda
