// SPDX-License-Identifier: Apache-2.0
// Descriptions of a linear layer's three products for cuBLASLt, which has column-major matrices only. Pure: makes no
// call of the library.
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
  column_sums     ///< vector = sums of B over the inner side, in addition to the product; backward_weight
};

/// A product of x (M, K), w (N, K) and y (M, N). Every member is part of a plan's identity.
struct ProductRequest {
  ProductKind kind = ProductKind::forward;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType operands = DType::f32;  ///< dtype of both factors
  DType result = DType::f32;
  ProductEpilogue epilogue = ProductEpilogue::none;
  bool accumulate = false;  ///< adds to the result's old values
  std::int64_t pitch = 0;   ///< elements from one row of y or dy to the next; 0: n. Not with gelu
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
  std::int64_t vector_length = 0;      ///< length of the bias or column sums; 0: the epilogue has none
  DType vector_dtype = DType::f32;     ///< dtype of the vector; the library requires D's dtype
  std::int64_t auxiliary_leading = 0;  ///< leading dimension of gelu's input, otherwise like D; 0: there is none
};

/// Device memory of a plan's operands, with `vector` and `auxiliary` if the epilogue has them.
struct ProductPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* vector = nullptr;
  void* auxiliary = nullptr;
};

[[nodiscard]] ProductPlan product_plan(const ProductRequest& request);

/// A product over some of y's or dy's N columns; its operands' offsets are in elements.
struct ProductPart {
  ProductRequest request;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t d = 0;
};
/// Returns the calls that make up a request, in their order. The library's fast kernels access 16 bytes at a time. If
/// rows of y or dy begin aligned and N is not a multiple of 16 bytes, as with 50,257 tokens, the remaining columns are
/// a separate small product. In backward_input the small product comes first and the large product adds to it, so that
/// the small product's share of a bf16 result is rounded twice.
[[nodiscard]] std::vector<ProductPart> product_parts(const ProductRequest& request);

/// Returns the reason why the library's documented requirements forbid this request, before any call of it; empty: they
/// do not.
[[nodiscard]] std::string product_refusal(const ProductRequest& request);

/// Returns whether the epilogue reads or writes a bias, or column sums.
[[nodiscard]] bool has_vector(ProductEpilogue epilogue);
/// Returns whether the epilogue reads or writes the input of gelu.
[[nodiscard]] bool has_auxiliary(ProductEpilogue epilogue);

/// Returns "y (33, 65) bf16 = x (33, 48) bf16 w^T + bias", for messages.
[[nodiscard]] std::string describe(const ProductRequest& request);

/// Returns the largest power of two, at most 256, that divides an address; the library's kernels may rely on it.
[[nodiscard]] std::uint32_t alignment_of(const void* memory);

}  // namespace maestro::cuda
