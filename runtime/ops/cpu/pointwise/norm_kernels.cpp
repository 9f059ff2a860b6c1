// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/norm_kernels.hpp"

#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

/// Returns the sum of term(i, part) over a row, in four running sums so that additions overlap; elements past the end
/// must add zero.
template <class Term>
MAESTRO_INLINE float sum_row(std::int64_t columns, Term term) {
  Vec sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * vector_width <= columns; i += 4 * vector_width) {
    for (int v = 0; v < 4; ++v) sum[v] += term(i + v * vector_width, Whole{});
  }
  for (; i + vector_width <= columns; i += vector_width) sum[0] += term(i, Whole{});
  if (i < columns) sum[1] += term(i, Part{columns - i});
  return reduce_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

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
  const float* weight = call.weight;
  for_vectors(call.columns,
              [=](std::int64_t i, auto part) { part.store(y + i, part.load(x + i) * rstd * part.load(weight + i)); });
}

/// Processes a row. With xhat = (x - mean) rstd and g = dy weight:
///   dx = rstd (g - sum(g) / C - xhat sum(g xhat) / C), dweight += dy xhat, dbias += dy;
/// RMS norm has mean 0 and no sum(g) term.
template <bool Centred, class Y, class X, class D>
MAESTRO_INLINE void backward_row(const NormBackwardCall& call, std::int64_t row, const Y* dy, const X* x, D* dx) {
  const std::int64_t columns = call.columns;
  const float mean = Centred ? call.mean[row] : 0.0F;
  const float rstd = call.rstd[row];
  const float* weight = call.weight;
  const float scale = 1.0F / static_cast<float>(columns);
  // sum(g xhat) / C and sum(g) / C
  const float along = scale * sum_row(columns, [=](std::int64_t i, auto part) {
                        return part.load(dy + i) * part.load(weight + i) * ((part.load(x + i) - mean) * rstd);
                      });
  float shift = 0;
  if constexpr (Centred) {
    shift =
        scale * sum_row(columns, [=](std::int64_t i, auto part) { return part.load(dy + i) * part.load(weight + i); });
  }
  const bool accumulate = call.accumulate;
  for_vectors(columns, [=](std::int64_t i, auto part) {
    const Vec xhat = (part.load(x + i) - mean) * rstd;
    Vec d = (part.load(dy + i) * part.load(weight + i) - shift - xhat * along) * rstd;
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
