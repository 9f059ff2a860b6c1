// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/tensor_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace maestro {
namespace {

TEST(TensorText, has_shape_range_mean_and_the_first_values) {
  std::vector<float> values{-1, 0.5F, 3, 2, 0, 1.5F};
  EXPECT_EQ(tensor_text(Tensor(values.data(), DType::f32, {3, 2}), 2, 8),
            "fp32 (3, 2): -1 to 3, mean 1\n  -1 0.5\n  3 2\n  ... (3 rows)");
  EXPECT_EQ(tensor_text(Tensor(values.data(), DType::f32, {1, 6}), 4, 2),
            "fp32 (1, 6): -1 to 3, mean 1\n  -1 0.5 ... (6)");
}

TEST(TensorText, counts_values_that_are_not_finite) {
  std::vector<float> values{NAN, INFINITY, 4};
  EXPECT_EQ(tensor_text(Tensor(values.data(), DType::f32, {3, 1}), 1),
            "fp32 (3, 1): 4 to 4, mean 4, 2 not finite\n  nan\n  ... (3 rows)");
}

TEST(TensorText, reads_every_dtype) {
  std::vector<std::int32_t> integers{7, -2};
  EXPECT_EQ(tensor_text(Tensor(integers.data(), DType::i32, {2})), "i32 (2): -2 to 7, mean 2.5\n  7 -2");
  std::vector<bfloat16> halves{bfloat16(0.5F)};
  EXPECT_EQ(tensor_text(Tensor(halves.data(), DType::bf16, {1, 1})), "bf16 (1, 1): 0.5 to 0.5, mean 0.5\n  0.5");
}

TEST(TensorText, names_a_tensor_without_memory_or_rows) {
  EXPECT_EQ(tensor_text(Tensor(nullptr, DType::f32, {2, 3})), "fp32 (2, 3), without memory");
  float nothing = 0;
  EXPECT_EQ(tensor_text(Tensor(&nothing, DType::f32, {0, 3})), "fp32 (0, 3)");
}

}  // namespace
}  // namespace maestro
