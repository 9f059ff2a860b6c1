// A user's own model part: y = scale * x on memory that maestro's arena owns.
#pragma once

#include "runtime/core/arena.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/tensor.hpp"

namespace outside {

class ScaleSection {
 public:
  explicit ScaleSection(float scale) : scale_(scale) {}

  /// x: (rows, columns) fp32; the result has x's shape and lives in `arena`.
  maestro::Result<maestro::Tensor> forward(maestro::Arena& arena, const maestro::Tensor& x) const {
    if (x.dtype() != maestro::DType::f32) {
      return maestro::Error{maestro::ErrorCode::invalid_argument, "scale: x must be fp32"};
    }
    const maestro::Tensor y = arena.allocate(x.shape(), x.dtype());
    const auto from = x.span<float>();
    const auto to = y.span<float>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = scale_ * from[i];
    return y;
  }

 private:
  float scale_;
};

}  // namespace outside
