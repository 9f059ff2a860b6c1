// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda_head_sizes.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(CudaHeadSizes, are_the_multiples_of_8_from_16_to_256) {
  for (std::int64_t size = 0; size <= 300; ++size) {
    EXPECT_EQ(cuda_head_size_refusal(size).empty(), size >= 16 && size <= 256 && size % 8 == 0) << size;
  }
}

TEST(CudaHeadSizes, that_are_refused_come_with_the_nearest) {
  EXPECT_EQ(cuda_head_size_refusal(20), "head size 20 is none of 16, 24, ..., 256; the nearest is 24");
  EXPECT_EQ(cuda_head_size_refusal(7), "head size 7 is none of 16, 24, ..., 256; the nearest is 16");
  EXPECT_EQ(cuda_head_size_refusal(1024), "head size 1024 is none of 16, 24, ..., 256; the nearest is 256");
}

}  // namespace
}  // namespace maestro
