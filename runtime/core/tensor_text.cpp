// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/tensor_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace maestro {

namespace {

double value_at(const ConstTensor& tensor, std::int64_t at) {
  switch (tensor.dtype()) {
    case DType::f32:
      return tensor.data<float>()[at];
    case DType::bf16:
      return static_cast<float>(tensor.data<bfloat16>()[at]);
    case DType::i32:
      return tensor.data<std::int32_t>()[at];
    case DType::i64:
      return static_cast<double>(tensor.data<std::int64_t>()[at]);
    case DType::u8:
      return tensor.data<std::uint8_t>()[at];
    case DType::u16:
      return tensor.data<std::uint16_t>()[at];
  }
  return 0;
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string summary(const ConstTensor& tensor) {
  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest, sum = 0;
  std::int64_t finite = 0;
  for (std::int64_t at = 0; at < tensor.elements(); ++at) {
    const double value = value_at(tensor, at);
    if (!std::isfinite(value)) continue;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    sum += value;
    ++finite;
  }
  std::string text;
  if (finite > 0) {
    text = ": " + short_text(smallest) + " to " + short_text(largest) + ", mean " +
           short_text(sum / static_cast<double>(finite));
  }
  const std::int64_t others = tensor.elements() - finite;
  if (others > 0) text += (text.empty() ? ": " : ", ") + std::to_string(others) + " not finite";
  return text;
}

}  // namespace

std::string tensor_text(const ConstTensor& tensor, std::int64_t rows, std::int64_t columns) {
  std::string text = std::string(name_of(tensor.dtype())) + " " + tensor.shape().to_string();
  if (!tensor.defined()) return text + ", without memory";
  text += summary(tensor);
  for (std::int64_t row = 0; row < std::min(rows, tensor.rows()); ++row) {
    text += "\n ";
    for (std::int64_t column = 0; column < std::min(columns, tensor.columns()); ++column) {
      text += " " + short_text(value_at(tensor, row * tensor.columns() + column));
    }
    if (tensor.columns() > columns) text += " ... (" + std::to_string(tensor.columns()) + ")";
  }
  if (tensor.rows() > rows) text += "\n  ... (" + std::to_string(tensor.rows()) + " rows)";
  return text;
}

}  // namespace maestro
