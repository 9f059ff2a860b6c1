// SPDX-License-Identifier: Apache-2.0
// The description of the three products of a linear layer for cuBLASLt, which has column-major matrices only. Pure: no
// call of the library is made here.
//
// Row-major (R, C) memory is a column-major (C, R) matrix with leading dimension C, so a row-major result is requested
// as its transpose, D = op(A) op(B):
//   forward          y^T  (N x M) = w x^T     A = w  as K x N, transposed    B = x  as K x M
//   backward_input   dx^T (K x M) = w^T dy^T  A = w  as K x N                B = dy as N x M
//   backward_weight  dw^T (K x N) = x^T dy    A = x  as K x M                B = dy as N x M, transposed
// The bias of y runs along the rows of D; dbias, the column sums of dy, along its columns (the sums of B over the
// product's inner side).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"

namespace maestro::cuda {

enum class ProductKind : std::uint8_t { forward, backward_input, backward_weight };

enum class ProductEpilogue : std::uint8_t {
  none,
  bias,           ///< D += bias along rows; forward
  gelu,           ///< aux = D, then D = gelu_tanh(D); forward
  gelu_bias,      ///< aux = D + bias, then D = gelu_tanh(aux); forward
  gelu_gradient,  ///< D = D * gelu_tanh'(aux); backward_input
  column_sums     ///< vector = sums of B over the inner side, beside the product; backward_weight
};

/// A product of x (M, K), w (N, K) and y (M, N). Every member is part of a plan's identity.
struct ProductRequest {
  ProductKind kind = ProductKind::forward;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType operands = DType::f32;  ///< of both factors
  DType result = DType::f32;
  ProductEpilogue epilogue = ProductEpilogue::none;
  bool accumulate = false;  ///< adds to the result's old values
  std::int64_t pitch = 0;   ///< elements from a row of y or dy to the next; 0: n. Without gelu
  auto operator<=>(const ProductRequest&) const = default;
};

/// A column-major matrix: element (r, c) at r + c * leading.
struct ColumnMajor {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;
  auto operator<=>(const ColumnMajor&) const = default;
};

/// D (rows x columns) = epilogue(op(A) op(B) + beta D).
struct ProductPlan {
  ColumnMajor a;
  ColumnMajor b;
  ColumnMajor d;
  bool transpose_a = false;
  bool transpose_b = false;
  float beta = 0;
  ProductEpilogue epilogue = ProductEpilogue::none;
  std::int64_t vector_length = 0;      ///< of bias or column sums; 0: the epilogue has none
  DType vector_dtype = DType::f32;     ///< the library wants the dtype of D
  std::int64_t auxiliary_leading = 0;  ///< of the input of gelu, laid out and typed as D; 0: the epilogue has none
};

/// Device memory of a plan's operands; `vector` and `auxiliary` where the epilogue has them.
struct ProductPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* vector = nullptr;
  void* auxiliary = nullptr;
};

[[nodiscard]] ProductPlan product_plan(const ProductRequest& request);

/// A product over some of the N columns of y or dy; the offsets are those of its operands, in elements.
struct ProductPart {
  ProductRequest request;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t d = 0;
};
/// Returns the calls that make up a request, in their order. The library's fast kernels access 16 bytes at a time:
/// where rows of y or dy begin aligned and N is no multiple of that, as with 50,257 tokens, the columns left over are a
/// small product of their own. In backward_input that one comes first, and the large one adds to it, so that its share
/// of a bf16 result is rounded twice.
[[nodiscard]] std::vector<ProductPart> product_parts(const ProductRequest& request);

/// Returns why the library's documented demands forbid this request, before any call of it; empty: they do not.
[[nodiscard]] std::string product_refusal(const ProductRequest& request);

/// Whether the epilogue reads or writes a bias, or column sums.
[[nodiscard]] bool has_vector(ProductEpilogue epilogue);
/// Whether the epilogue reads or writes the input of gelu.
[[nodiscard]] bool has_auxiliary(ProductEpilogue epilogue);

/// "y (33, 65) bf16 = x (33, 48) bf16 w^T + bias": for messages.
[[nodiscard]] std::string describe(const ProductRequest& request);

/// The largest power of two, at most 256, that divides an address; the library's kernels may rely on it.
[[nodiscard]] std::uint32_t alignment_of(const void* memory);

}  // namespace maestro::cuda
