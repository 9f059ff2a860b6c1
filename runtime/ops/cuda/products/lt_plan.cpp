// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/products/lt_plan.hpp"

#include <algorithm>
#include <bit>

namespace maestro::cuda {
namespace {

constexpr std::int64_t access_bytes = 16;
constexpr std::int64_t auxiliary_multiple = 8;  // required divisor of the leading dimension of gelu's input

/// Returns a row-major (rows, columns) tensor as the library sees it.
ColumnMajor transposed_view(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {dtype, columns, rows, columns};
}

/// Returns the view of y or dy.
ColumnMajor view_of_output(DType dtype, const ProductRequest& request) {
  ColumnMajor view = transposed_view(dtype, request.m, request.n);
  if (request.pitch > 0) view.leading = request.pitch;
  return view;
}

std::string shape_text(std::string_view name, std::int64_t rows, std::int64_t columns, DType dtype) {
  return std::string(name) + " (" + std::to_string(rows) + ", " + std::to_string(columns) + ") " +
         std::string(name_of(dtype));
}

}  // namespace

bool has_vector(ProductEpilogue epilogue) {
  return epilogue == ProductEpilogue::bias || epilogue == ProductEpilogue::gelu_bias ||
         epilogue == ProductEpilogue::column_sums;
}

bool has_auxiliary(ProductEpilogue epilogue) {
  return epilogue == ProductEpilogue::gelu || epilogue == ProductEpilogue::gelu_bias ||
         epilogue == ProductEpilogue::gelu_gradient;
}

ProductPlan product_plan(const ProductRequest& request) {
  const ColumnMajor x = transposed_view(request.operands, request.m, request.k);
  const ColumnMajor w = transposed_view(request.operands, request.n, request.k);
  const ColumnMajor dy = view_of_output(request.operands, request);
  ProductPlan plan;
  switch (request.kind) {
    case ProductKind::forward:
      plan.a = w;
      plan.b = x;
      plan.transpose_a = true;
      plan.d = view_of_output(request.result, request);
      break;
    case ProductKind::backward_input:
      plan.a = w;
      plan.b = dy;
      plan.d = transposed_view(request.result, request.m, request.k);
      break;
    case ProductKind::backward_weight:
      plan.a = x;
      plan.b = dy;
      plan.transpose_b = true;
      plan.d = transposed_view(request.result, request.n, request.k);
      break;
  }
  plan.beta = request.accumulate ? 1.0F : 0.0F;
  plan.epilogue = request.epilogue;
  plan.vector_dtype = request.result;
  if (has_vector(request.epilogue)) {
    plan.vector_length = request.epilogue == ProductEpilogue::column_sums ? plan.d.columns : plan.d.rows;
  }
  if (has_auxiliary(request.epilogue)) plan.auxiliary_leading = plan.d.leading;
  return plan;
}

std::vector<ProductPart> product_parts(const ProductRequest& request) {
  const std::int64_t access = access_bytes / static_cast<std::int64_t>(size_of(request.operands));
  const std::int64_t large = request.n / access * access;
  const bool aligned = request.pitch % access == 0 && request.pitch > 0;
  if (large == request.n || large == 0 || !aligned || request.epilogue != ProductEpilogue::none) return {{request}};
  ProductPart first{request};
  ProductPart rest{request};
  first.request.n = large;
  rest.request.n = request.n - large;
  switch (request.kind) {
    case ProductKind::forward:
      rest.a = large * request.k;
      rest.d = large;
      break;
    case ProductKind::backward_input:
      rest.a = large * request.k;
      rest.b = large;
      first.request.accumulate = true;
      return {rest, first};
    case ProductKind::backward_weight:
      rest.b = large;
      rest.d = large * request.k;
      break;
  }
  return {first, rest};
}

std::string product_refusal(const ProductRequest& request) {
  const ProductPlan plan = product_plan(request);
  if (plan.auxiliary_leading % auxiliary_multiple != 0) {
    return "rows of " + std::to_string(plan.auxiliary_leading) + " elements before gelu are no multiple of " +
           std::to_string(auxiliary_multiple);
  }
  return {};
}

std::string describe(const ProductRequest& request) {
  const bool adds = request.accumulate;
  const std::string sign = adds ? " += " : " = ";
  const std::string w = shape_text("w", request.n, request.k, request.operands);
  const std::string dy = shape_text("dy", request.m, request.n, request.operands);
  std::string text;
  switch (request.kind) {
    case ProductKind::forward:
      text = shape_text("y", request.m, request.n, request.result) + sign +
             shape_text("x", request.m, request.k, request.operands) + " " + w + "^T";
      break;
    case ProductKind::backward_input:
      text = shape_text("dx", request.m, request.k, request.result) + sign + dy + " " + w;
      break;
    case ProductKind::backward_weight:
      text = shape_text("dw", request.n, request.k, request.result) + sign + dy + "^T " +
             shape_text("x", request.m, request.k, request.operands);
      break;
  }
  switch (request.epilogue) {
    case ProductEpilogue::none:
      return text;
    case ProductEpilogue::bias:
      return text + " + bias";
    case ProductEpilogue::gelu:
      return text + ", gelu";
    case ProductEpilogue::gelu_bias:
      return text + " + bias, gelu";
    case ProductEpilogue::gelu_gradient:
      return text + ", gelu gradient";
    case ProductEpilogue::column_sums:
      return text + ", column sums of dy";
  }
  return text;
}

std::uint32_t alignment_of(const void* memory) {
  constexpr std::uint32_t most = 256;
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(memory) & (most - 1));
  return address == 0 ? most : std::min(most, std::uint32_t{1} << std::countr_zero(address));
}

}  // namespace maestro::cuda
