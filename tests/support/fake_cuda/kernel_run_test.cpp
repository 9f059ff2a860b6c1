// SPDX-License-Identifier: Apache-2.0
// Correct and wrong kernels run by the fake. Invariants: kernel_run.hpp.
#include "tests/support/fake_cuda/kernel_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "runtime/ops/cuda/cuda_language.hpp"
#include "runtime/ops/cuda/tensor_core.hpp"

namespace maestro::cuda {
namespace {

using fake_cuda::KernelError;
using fake_cuda::Order;

template <class Body>
void run(dim3 grid, dim3 block, std::size_t shared_bytes, Body body) {
  fake_cuda::run_kernel({"subject", grid, block, shared_bytes, body});
}
template <class Body>
std::string error_of(unsigned threads, std::size_t shared_bytes, Body body) {
  try {
    run(1, threads, shared_bytes, body);
  } catch (const KernelError& error) {
    return error.what();
  }
  return "";
}

TEST(CudaDouble, runs_every_thread_of_every_block_once) {
  constexpr int threads = 3 * 2 * 2 * 16 * 2;
  std::vector<int> seen(threads);
  run(dim3(3, 2, 2), dim3(16, 2), 0, [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    ++seen[block * 32 + threadIdx.y * blockDim.x + threadIdx.x];
  });
  EXPECT_EQ(seen, std::vector<int>(threads, 1));
}

TEST(CudaDouble, sums_blocks_of_any_number_of_warps_on_all_threads) {
  for (const int warps : {1, 3, 32}) {
    std::vector<int> sums(static_cast<std::size_t>(warps) * warp_size);
    const int last = warps * warp_size - 1;
    run(2, dim3(static_cast<unsigned>(warps * warp_size)), 0, [&] {
      sums[threadIdx.x] = block_sum(static_cast<int>(threadIdx.x)) + block_max(static_cast<int>(threadIdx.x));
    });
    EXPECT_THAT(sums, ::testing::Each(last * (last + 1) / 2 + last)) << warps;
  }
}

TEST(CudaDouble, shuffles_as_the_device_does) {
  std::vector<int> down(32);
  std::vector<int> up(32);
  std::vector<int> from(32);
  std::vector<unsigned> votes(32);
  run(1, 32, 0, [&] {
    const auto i = static_cast<int>(threadIdx.x);
    down[threadIdx.x] = __shfl_down_sync(all_lanes, i, 3U, 8);
    up[threadIdx.x] = __shfl_up_sync(all_lanes, i, 1U);
    from[threadIdx.x] = __shfl_sync(all_lanes, i, 5, 16);
    votes[threadIdx.x] = __ballot_sync(all_lanes, i < 4 ? 1 : 0);
  });
  for (int i = 0; i < 32; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(down[at], i % 8 + 3 < 8 ? i + 3 : i);
    EXPECT_EQ(up[at], i == 0 ? 0 : i - 1);
    EXPECT_EQ(from[at], i / 16 * 16 + 5);
    EXPECT_EQ(votes[at], 0xfU);
  }
}

TEST(CudaDouble, multiplies_tiles_as_the_fragment_layout_says) {
  float a[16][16];
  float b[16][8];
  float d[16][8] = {};
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>(i - 2 * k);
    for (int j = 0; j < 8; ++j) b[i][j] = static_cast<float>(3 * i - j * j);
  }
  run(1, 32, 0, [&] {
    const int g = lane_index() / 4;
    const int t = lane_index() % 4;
    const auto pair = [](float low, float high) {
      return static_cast<std::uint32_t>(bfloat16(high).bits) << 16 | bfloat16(low).bits;
    };
    const std::uint32_t of_a[4] = {pair(a[g][2 * t], a[g][2 * t + 1]), pair(a[g + 8][2 * t], a[g + 8][2 * t + 1]),
                                   pair(a[g][2 * t + 8], a[g][2 * t + 9]),
                                   pair(a[g + 8][2 * t + 8], a[g + 8][2 * t + 9])};
    const std::uint32_t of_b[2] = {pair(b[2 * t][g], b[2 * t + 1][g]), pair(b[2 * t + 8][g], b[2 * t + 9][g])};
    float c[4] = {1, 1, 1, 1};
    mma_bf16_16x8x16(c, of_a, of_b, c);
    for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][2 * t + i % 2] = c[i];
  });
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float wanted = 1;
      for (int k = 0; k < 16; ++k) wanted += a[i][k] * b[k][j];
      EXPECT_EQ(d[i][j], wanted) << i << ", " << j;
    }
  }
}

TEST(CudaDouble, fails_a_kernel_whose_barrier_some_threads_skip_KD_1) {
  const std::string error = error_of(64, 0, [] {
    if (threadIdx.x < 40) __syncthreads();
  });
  EXPECT_THAT(error, ::testing::AllOf(::testing::HasSubstr("kernel subject"), ::testing::HasSubstr("40 wait"),
                                      ::testing::HasSubstr("24 have ended")));
}

TEST(CudaDouble, fails_a_kernel_whose_threads_meet_at_different_barriers_KD_1) {
  const std::string error = error_of(64, 0, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_THAT(error, ::testing::HasSubstr("threads do not meet"));
}

TEST(CudaDouble, fails_warp_operations_outside_of_their_mask_KD_2) {
  EXPECT_THAT(error_of(32, 0,
                       [] {
                         if (threadIdx.x < 16) static_cast<void>(warp_sum(1));
                       }),
              ::testing::HasSubstr("16 wait in a warp operation"));
  EXPECT_THAT(error_of(32, 0, [] { static_cast<void>(__shfl_sync(0xffffU, 1, 0)); }),
              ::testing::HasSubstr("mask leaves it out"));
  EXPECT_THAT(error_of(32, 0,
                       [] {
                         if (threadIdx.x < 16) static_cast<void>(__shfl_sync(0xffffU, 1, 20));
                       }),
              ::testing::HasSubstr("outside of its mask"));
  EXPECT_THAT(error_of(20, 0, [] { static_cast<void>(warp_sum(1)); }), ::testing::HasSubstr("20 wait"));
}

TEST(CudaDouble, fails_a_kernel_that_writes_past_its_dynamic_shared_memory_KD_3) {
  const auto body = [] { shared_memory<float>()[threadIdx.x] = 1; };
  EXPECT_EQ(error_of(32, 32 * sizeof(float), body), "");
  EXPECT_THAT(error_of(32, 31 * sizeof(float), body), ::testing::HasSubstr("124 bytes of dynamic shared memory"));
}

TEST(CudaDouble, fails_a_kernel_that_writes_past_a_shared_variable_KD_3) {
  for (const unsigned threads : {33U, 32U}) {  // only the first kernel fails
    const std::string error = error_of(threads, 0, [] {
      MAESTRO_SHARED(int, variable, 32);
      variable[threadIdx.x] = 1;
    });
    EXPECT_EQ(error.find("shared variable of 128 bytes") != std::string::npos, threads > 32) << error;
  }
}

TEST(CudaDouble, fills_shared_memory_with_nan_before_every_block) {
  int nans = 0;
  run(3, 32, 32 * sizeof(float), [&] {
    MAESTRO_SHARED(float, variable, 32);
    nans += std::isnan(variable[threadIdx.x]) && std::isnan(shared_memory<float>()[threadIdx.x]) ? 1 : 0;
    variable[threadIdx.x] = shared_memory<float>()[threadIdx.x] = 0;
  });
  EXPECT_EQ(nans, 3 * 32);
}

TEST(CudaDouble, shows_a_race_as_results_that_depend_on_the_order_of_threads) {
  const auto last_writer = [](Order order) {
    unsigned last = 0;
    fake_cuda::set_order(order);
    run(2, 64, 0, [&] { last = blockIdx.x * 64 + threadIdx.x; });
    fake_cuda::set_order(Order::forward);
    return last;
  };
  EXPECT_EQ(last_writer(Order::forward), 127U);
  EXPECT_EQ(last_writer(Order::reverse), 0U);
}

TEST(CudaDouble, runs_kernels_of_several_host_threads_at_once) {
  std::vector<int> sums(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    threads.emplace_back([&sums, i] {
      run(8, 64, 0, [&sums, i] {
        const int sum = block_sum(static_cast<int>(i));
        if (threadIdx.x == 0) sums[i] += sum;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::vector<int>{0, 8 * 64, 2 * 8 * 64, 3 * 8 * 64}));
}

TEST(CudaDouble, runs_on_after_a_kernel_that_failed) {
  EXPECT_NE(error_of(64, 0,
                     [] {
                       if (threadIdx.x == 0) __syncthreads();
                     }),
            "");
  EXPECT_EQ(error_of(64, 0, [] { __syncthreads(); }), "");
}

}  // namespace
}  // namespace maestro::cuda
