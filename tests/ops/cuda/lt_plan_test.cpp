// SPDX-License-Identifier: Apache-2.0
// Plans of matrix products against row-major loops, through an interpreter of column-major products. Tolerance: f32
// sums with up to 8 products of values that bf16 holds exactly are within 1e-6; bf16 results are rounded once, 2^-8.
#include "runtime/ops/cuda/products/lt_plan.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tests/ops/owned_tensor.hpp"
#include "tests/support/fake_cuda/column_major_product.hpp"

namespace maestro::cuda {
namespace {

using testing::exact_normals;
using testing::OwnedTensor;
using testing::Values;
using testing::worst_error;

double tolerance_of(DType dtype) {
  return dtype == DType::f32 ? 1e-6 : 0x1p-8;
}

/// Row-major matrices of a linear layer, named as in the operator table.
struct Layer {
  Layer(std::int64_t m_, std::int64_t n_, std::int64_t k_, unsigned seed) : m(m_), n(n_), k(k_) {
    std::mt19937 generator(seed);
    x = exact_normals(generator, m * k);
    w = exact_normals(generator, n * k);
    dy = exact_normals(generator, m * n);
    bias = exact_normals(generator, n);
    held = exact_normals(generator, std::max({m * n, m * k, n * k}));
  }
  [[nodiscard]] double product(ProductKind kind, std::int64_t row, std::int64_t column) const {
    const auto at = [](const Values& values, std::int64_t columns, std::int64_t r, std::int64_t c) {
      return values[static_cast<std::size_t>(r * columns + c)];
    };
    double sum = 0;
    if (kind == ProductKind::forward) {
      for (std::int64_t i = 0; i < k; ++i) sum += at(x, k, row, i) * at(w, k, column, i);
    } else if (kind == ProductKind::backward_input) {
      for (std::int64_t i = 0; i < n; ++i) sum += at(dy, n, row, i) * at(w, k, i, column);
    } else {
      for (std::int64_t i = 0; i < m; ++i) sum += at(dy, n, i, row) * at(x, k, i, column);
    }
    return sum;
  }
  [[nodiscard]] Shape result_shape(ProductKind kind) const {
    if (kind == ProductKind::forward) return Shape{m, n};
    return kind == ProductKind::backward_input ? Shape{m, k} : Shape{n, k};
  }
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Values x;
  Values w;
  Values dy;
  Values bias;
  Values held;  // previous result, or gelu's previous input
};

/// Runs the plan of a request and compares everything that it writes with row-major loops.
void check(const Layer& layer, ProductKind kind, DType operands, DType result, ProductEpilogue epilogue,
           bool accumulate) {
  const ProductRequest request{kind, layer.m, layer.n, layer.k, operands, result, epilogue, accumulate};
  SCOPED_TRACE(describe(request));
  const ProductPlan plan = product_plan(request);
  const Shape shape = layer.result_shape(kind);
  const OwnedTensor x(operands, Shape{layer.m, layer.k}, layer.x);
  const OwnedTensor w(operands, Shape{layer.n, layer.k}, layer.w);
  const OwnedTensor dy(operands, Shape{layer.m, layer.n}, layer.dy);
  const auto held = Values(layer.held.begin(), layer.held.begin() + shape.elements());
  const OwnedTensor d(result, shape, held);
  const OwnedTensor auxiliary(result, shape, held);
  const OwnedTensor vector(result, Shape{layer.n}, layer.bias);
  const OwnedTensor& a = kind == ProductKind::backward_weight ? x : w;
  const OwnedTensor& b = kind == ProductKind::forward ? x : dy;
  testing::run_column_major_product(plan, {a.tensor().raw(), b.tensor().raw(), d.tensor().raw(), d.tensor().raw(),
                                           vector.tensor().raw(), auxiliary.tensor().raw()});
  Values wanted;
  Values wanted_auxiliary;
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    for (std::int64_t column = 0; column < shape.columns(); ++column) {
      const auto place = static_cast<std::size_t>(row * shape.columns() + column);
      double value = layer.product(kind, row, column) + (accumulate ? held[place] : 0);
      if (epilogue == ProductEpilogue::bias || epilogue == ProductEpilogue::gelu_bias) {
        value += layer.bias[static_cast<std::size_t>(column)];
      }
      wanted_auxiliary.push_back(value);
      if (epilogue == ProductEpilogue::gelu || epilogue == ProductEpilogue::gelu_bias)
        value = testing::gelu_tanh(value);
      if (epilogue == ProductEpilogue::gelu_gradient) value *= testing::gelu_tanh_slope(held[place]);
      wanted.push_back(value);
    }
  }
  EXPECT_LT(worst_error(d.values(), wanted), tolerance_of(result));
  if (has_auxiliary(epilogue) && kind == ProductKind::forward) {
    EXPECT_LT(worst_error(auxiliary.values(), wanted_auxiliary), tolerance_of(result));
  }
  if (epilogue == ProductEpilogue::column_sums) {
    Values sums(static_cast<std::size_t>(layer.n));
    for (std::size_t i = 0; i < layer.dy.size(); ++i) sums[i % sums.size()] += layer.dy[i];
    EXPECT_LT(worst_error(vector.values(), sums), tolerance_of(result));
  }
}

TEST(LtPlan, every_product_of_small_odd_shapes_is_the_row_major_one) {
  using enum ProductEpilogue;
  const std::vector<std::pair<ProductKind, std::vector<ProductEpilogue>>> kinds = {
      {ProductKind::forward, {none, bias, gelu, gelu_bias}},
      {ProductKind::backward_input, {none, gelu_gradient}},
      {ProductKind::backward_weight, {none, column_sums}}};
  const std::vector<std::pair<DType, DType>> dtypes = {
      {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};
  const std::vector<std::int64_t> sides = {1, 2, 3, 5, 8};
  for (const std::int64_t m : sides) {
    for (const std::int64_t n : sides) {
      for (const std::int64_t k : sides) {
        const Layer layer(m, n, k, static_cast<unsigned>(m * 100 + n * 10 + k));
        for (const auto& [kind, epilogues] : kinds) {
          for (const ProductEpilogue epilogue : epilogues) {
            for (const auto& [operands, result] : dtypes) {
              for (const bool accumulate : {false, true}) check(layer, kind, operands, result, epilogue, accumulate);
            }
          }
        }
      }
    }
  }
}

TEST(LtPlan, spaced_rows_are_those_of_y_and_dy_alone) {
  ProductRequest request{ProductKind::forward, 3, 5, 7, DType::f32, DType::f32};
  request.pitch = 8;
  EXPECT_EQ(product_plan(request).d, (ColumnMajor{DType::f32, 5, 3, 8}));
  EXPECT_EQ(product_plan(request).b.leading, 7);
  request.kind = ProductKind::backward_input;
  EXPECT_EQ(product_plan(request).b, (ColumnMajor{DType::f32, 5, 3, 8}));
  EXPECT_EQ(product_plan(request).d.leading, 7);
  request.kind = ProductKind::backward_weight;
  EXPECT_EQ(product_plan(request).b, (ColumnMajor{DType::f32, 5, 3, 8}));
  EXPECT_EQ(product_plan(request).d.leading, 7);
}

/// Returns n and the offsets of a, b and d for each part of the request.
std::vector<std::array<std::int64_t, 4>> parts_of(const ProductRequest& request) {
  std::vector<std::array<std::int64_t, 4>> parts;
  for (const ProductPart& part : product_parts(request)) parts.push_back({part.request.n, part.a, part.b, part.d});
  return parts;
}

TEST(LtPlan, columns_behind_the_last_whole_access_are_a_product_of_their_own) {
  using Parts = std::vector<std::array<std::int64_t, 4>>;
  ProductRequest request{ProductKind::forward, 4, 50257, 3, DType::bf16, DType::bf16};
  request.pitch = 50304;
  EXPECT_EQ(parts_of(request), (Parts{{50256, 0, 0, 0}, {1, 50256 * 3, 0, 50256}}));
  request.kind = ProductKind::backward_weight;
  request.accumulate = true;
  EXPECT_EQ(parts_of(request), (Parts{{50256, 0, 0, 0}, {1, 0, 50256, 50256 * 3}}));
  request.kind = ProductKind::backward_input;
  request.accumulate = false;
  EXPECT_EQ(parts_of(request), (Parts{{1, 50256 * 3, 50256, 0}, {50256, 0, 0, 0}}));
  EXPECT_FALSE(product_parts(request)[0].request.accumulate);  // the second adds to the first
  EXPECT_TRUE(product_parts(request)[1].request.accumulate);
  request.operands = DType::f32;  // four elements per access
  request.n = 50254;
  EXPECT_EQ(product_parts(request)[0].request.n, 2);
}

TEST(LtPlan, a_product_is_whole_where_a_part_would_not_be_faster) {
  ProductRequest request{ProductKind::forward, 4, 50257, 3, DType::bf16, DType::bf16};
  const auto whole = [](const ProductRequest& of) { return product_parts(of).size() == 1; };
  EXPECT_TRUE(whole(request)) << "rows of y begin anywhere";
  request.pitch = 50257 + 6;
  EXPECT_TRUE(whole(request)) << "likewise";
  request.pitch = 50304;
  EXPECT_FALSE(whole(request));
  request.epilogue = ProductEpilogue::bias;
  EXPECT_TRUE(whole(request)) << "a bias would be cut, too";
  request.epilogue = ProductEpilogue::none;
  request.n = 7;
  EXPECT_TRUE(whole(request)) << "nothing but a rest";
  request.n = 50256;
  EXPECT_TRUE(whole(request)) << "no rest";
}

TEST(LtPlan, the_vector_is_as_long_as_the_side_it_belongs_to) {
  ProductRequest request{ProductKind::forward, 3, 5, 7, DType::bf16, DType::bf16, ProductEpilogue::bias, false};
  EXPECT_EQ(product_plan(request).vector_length, 5);
  EXPECT_EQ(product_plan(request).vector_dtype, DType::bf16);
  request.epilogue = ProductEpilogue::none;
  EXPECT_EQ(product_plan(request).vector_length, 0);
  request = {ProductKind::backward_weight, 3, 5, 7, DType::bf16, DType::f32, ProductEpilogue::column_sums, true};
  EXPECT_EQ(product_plan(request).vector_length, 5);
  EXPECT_EQ(product_plan(request).vector_dtype, DType::f32);
}

TEST(LtPlan, gelu_of_rows_that_are_no_multiple_of_eight_is_refused) {
  ProductRequest request{ProductKind::forward, 3, 12, 7, DType::bf16, DType::bf16, ProductEpilogue::gelu_bias, false};
  EXPECT_EQ(product_refusal(request), "rows of 12 elements before gelu are no multiple of 8");
  request.epilogue = ProductEpilogue::bias;
  EXPECT_EQ(product_refusal(request), "");
  request.epilogue = ProductEpilogue::gelu_bias;
  request.n = 16;
  EXPECT_EQ(product_refusal(request), "");
  request = {ProductKind::backward_input, 3, 16, 12, DType::bf16, DType::bf16, ProductEpilogue::gelu_gradient, false};
  EXPECT_NE(product_refusal(request), "");
}

TEST(LtPlan, alignment_is_the_largest_power_of_two_up_to_256) {
  const auto at = [](std::uintptr_t address) { return alignment_of(reinterpret_cast<const void*>(address)); };
  EXPECT_EQ(at(0x10000), 256U);
  EXPECT_EQ(at(0x10100), 256U);
  EXPECT_EQ(at(0x10080), 128U);
  EXPECT_EQ(at(0x10010), 16U);
  EXPECT_EQ(at(0x10002), 2U);
  EXPECT_EQ(at(0x10007), 1U);
}

TEST(LtPlan, messages_name_product_and_shapes) {
  EXPECT_EQ(describe({ProductKind::forward, 3, 5, 7, DType::bf16, DType::f32, ProductEpilogue::bias, false}),
            "y (3, 5) fp32 = x (3, 7) bf16 w (5, 7) bf16^T + bias");
  EXPECT_EQ(describe({ProductKind::backward_weight, 3, 5, 7, DType::f32, DType::f32, ProductEpilogue::none, true}),
            "dw (5, 7) fp32 += dy (3, 5) fp32^T x (3, 7) fp32");
}

}  // namespace
}  // namespace maestro::cuda
