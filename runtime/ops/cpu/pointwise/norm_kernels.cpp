// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/norm_kernels.hpp"

#include "runtime/ops/cpu/pointwise/row_sums.hpp"
#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

/// Takes two passes: in a single pass the variance of a row with a large mean would cancel.
template <class X, class Y>
void layer_norm_row(const NormCall& call, std::int64_t row, const X* x, Y* y) {
  const std::int64_t columns = call.columns;
  const float scale = 1.0F / static_cast<float>(columns);
  const float mean = scale * sum_row(columns, [=](std::int64_t i, auto part) { return part.load(x + i); });
  const float squares = sum_row(columns, [=](std::int64_t i, auto part) {
    const Vec d = part.load(x + i) - mean;
    return part.masked(d * d);
  });
  const float rstd = 1.0F / square_root(scale * squares + call.epsilon);
  call.mean[row] = mean;
  call.rstd[row] = rstd;
  const float* weight = call.weight;
  const float* bias = call.bias;
  for_vectors(columns, [=](std::int64_t i, auto part) {
    part.store(y + i, (part.load(x + i) - mean) * rstd * part.load(weight + i) + part.load(bias + i));
  });
}

template <class X, class Y>
void rms_norm_row(const NormCall& call, std::int64_t row, const X* x, Y* y) {
  const float scale = 1.0F / static_cast<float>(call.columns);
  const float squares = sum_row(call.columns, [=](std::int64_t i, auto part) {
    const Vec v = part.load(x + i);
    return v * v;
  });
  const float rstd = 1.0F / square_root(scale * squares + call.epsilon);
  call.rstd[row] = rstd;
  for_vectors(call.columns, [=, weight = call.weight, offset = call.offset](std::int64_t i, auto part) {
    part.store(y + i, part.load(x + i) * rstd * (part.load(weight + i) + offset));
  });
}

/// Processes a row. With xhat = (x - mean) rstd and g = dy (weight + offset):
///   dx = rstd (g - sum(g) / C - xhat sum(g xhat) / C), dweight += dy xhat, dbias += dy;
/// RMS norm has mean 0 and no sum(g) term.
template <bool Centred, class Y, class X, class D>
MAESTRO_INLINE void backward_row(const NormBackwardCall& call, std::int64_t row, const Y* dy, const X* x, D* dx) {
  const std::int64_t columns = call.columns;
  const float mean = Centred ? call.mean[row] : 0.0F;
  const float rstd = call.rstd[row];
  const auto gradient = [dy, weight = call.weight, offset = call.offset](std::int64_t i, auto part) {
    return part.load(dy + i) * (part.load(weight + i) + offset);
  };
  const float scale = 1.0F / static_cast<float>(columns);
  // sum(g xhat) / C and sum(g) / C
  const float along = scale * sum_row(columns, [=](std::int64_t i, auto part) {
                        return gradient(i, part) * ((part.load(x + i) - mean) * rstd);
                      });
  float shift = 0;
  if constexpr (Centred) {
    shift = scale * sum_row(columns, gradient);
  }
  const bool accumulate = call.accumulate;
  for_vectors(columns, [=](std::int64_t i, auto part) {
    const Vec xhat = (part.load(x + i) - mean) * rstd;
    Vec d = (gradient(i, part) - shift - xhat * along) * rstd;
    if (accumulate) d += part.load(dx + i);
    part.store(dx + i, d);
  });
}

template <bool Centred, class Y, class X>
MAESTRO_INLINE void parameter_row(const NormBackwardCall& call, std::int64_t row, const Y* dy, const X* x) {
  const float mean = Centred ? call.mean[row] : 0.0F;
  const float rstd = call.rstd[row];
  float* dweight = call.dweight;
  float* dbias = call.dbias;
  for_vectors(call.columns, [=](std::int64_t i, auto part) {
    const Vec d = part.load(dy + i);
    part.store(dweight + i, part.load(dweight + i) + d * ((part.load(x + i) - mean) * rstd));
    if constexpr (Centred) part.store(dbias + i, part.load(dbias + i) + d);
  });
}

template <bool Centred>
void backward(const NormBackwardCall& call) {
  typed(call.dy, [&](const auto* dy) {
    typed(call.x, [&](const auto* x) {
      typed(call.dx, [&](auto* dx) {
        for (std::int64_t row = 0; row < call.rows; ++row) {
          const std::int64_t first = row * call.columns;
          // dweight first: dx may be dy's memory.
          if (call.dweight != nullptr) parameter_row<Centred>(call, row, dy + first, x + first);
          backward_row<Centred>(call, row, dy + first, x + first, dx + first);
        }
      });
    });
  });
}

void layer_norm(const NormCall& call) {
  typed(call.x, [&](const auto* x) {
    typed(call.y, [&](auto* y) {
      for (std::int64_t row = 0; row < call.rows; ++row) {
        layer_norm_row(call, row, x + row * call.columns, y + row * call.columns);
      }
    });
  });
}

void rms_norm(const NormCall& call) {
  typed(call.x, [&](const auto* x) {
    typed(call.y, [&](auto* y) {
      for (std::int64_t row = 0; row < call.rows; ++row) {
        rms_norm_row(call, row, x + row * call.columns, y + row * call.columns);
      }
    });
  });
}

}  // namespace

const NormKernels norm_kernels = {layer_norm, backward<true>, rms_norm, backward<false>};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
