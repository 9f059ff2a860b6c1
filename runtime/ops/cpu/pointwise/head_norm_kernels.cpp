// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/head_norm_kernels.hpp"

#include "runtime/ops/cpu/pointwise/row_sums.hpp"
#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

/// Calls body(groups, a group's first column, its sum's number) for every group in a row.
template <class Body>
MAESTRO_INLINE void for_groups(const HeadNormCall& call, std::int64_t row, Body body) {
  const std::int64_t row_sums = call.groups[0].count + call.groups[1].count;
  for (const NormGroups& groups : call.groups) {
    for (std::int64_t i = 0; i < groups.count; ++i) {
      body(groups, row * call.columns + groups.first + i * groups.size, row * row_sums + groups.first_sum + i);
    }
  }
}

MAESTRO_INLINE float mean_factor(const HeadNormCall& call, const NormGroups& groups) {
  return 1.0F / static_cast<float>(groups.size * call.ranks);
}
MAESTRO_INLINE float rstd(const HeadNormCall& call, const NormGroups& groups, std::int64_t sum) {
  return 1.0F / square_root(mean_factor(call, groups) * call.sums[sum] + call.epsilon);
}

template <class From, class To>
MAESTRO_INLINE void copy_rest(const HeadNormCall& call, std::int64_t row, const From* from, To* to) {
  const std::int64_t first = row * call.columns + call.normed;
  for_vectors(call.columns - call.normed,
              [=](std::int64_t i, auto part) { part.store(to + first + i, part.load(from + first + i)); });
}

template <class X>
void sum_squares(const HeadNormCall& call, const X* x) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for_groups(call, row, [&](const NormGroups& groups, std::int64_t first, std::int64_t sum) {
      call.sums[sum] = sum_row(groups.size, [=](std::int64_t i, auto part) {
        const Vec v = part.load(x + first + i);
        return v * v;
      });
    });
  }
}

template <class X, class Y>
void normalise(const HeadNormCall& call, const X* x, Y* y) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for_groups(call, row, [&](const NormGroups& groups, std::int64_t first, std::int64_t sum) {
      const float r = rstd(call, groups, sum);
      for_vectors(groups.size, [=, weight = groups.weight, offset = call.offset](std::int64_t i, auto part) {
        part.store(y + first + i, part.load(x + first + i) * r * (part.load(weight + i) + offset));
      });
    });
    copy_rest(call, row, x, y);
  }
}

void forward(const HeadNormCall& call) {
  typed(call.x, [&](const auto* x) {
    if (!call.sums_known) sum_squares(call, x);
    if (call.y.data == nullptr) return;
    typed(call.y, [&](auto* y) { normalise(call, x, y); });
  });
}

template <class Y, class X>
void sum_dots(const HeadNormBackwardCall& call, const Y* dy, const X* x) {
  for (std::int64_t row = 0; row < call.norm.rows; ++row) {
    for_groups(call.norm, row, [&](const NormGroups& groups, std::int64_t first, std::int64_t sum) {
      call.dots[sum] =
          sum_row(groups.size, [=, weight = groups.weight, offset = call.norm.offset](std::int64_t i, auto part) {
            return part.load(dy + first + i) * (part.load(weight + i) + offset) * part.load(x + first + i);
          });
    });
  }
}

/// Computes dx = r g - x r^3 dot / n and dweight += dy x r. Reads a vector of dy before it writes dx's, which may be
/// the same memory.
template <class Y, class X, class D>
void differentiate(const HeadNormBackwardCall& call, const Y* dy, const X* x, D* dx) {
  const HeadNormCall& norm = call.norm;
  for (std::int64_t row = 0; row < norm.rows; ++row) {
    for_groups(norm, row, [&](const NormGroups& groups, std::int64_t first, std::int64_t sum) {
      const float r = rstd(norm, groups, sum);
      const float along = mean_factor(norm, groups) * call.dots[sum] * r * r;
      float* dweight = groups.dweight;
      for_vectors(groups.size, [=, weight = groups.weight, offset = norm.offset](std::int64_t i, auto part) {
        const Vec d = part.load(dy + first + i);
        const Vec v = part.load(x + first + i);
        if (dweight != nullptr) part.store(dweight + i, part.load(dweight + i) + d * v * r);
        part.store(dx + first + i, (d * (part.load(weight + i) + offset) - v * along) * r);
      });
    });
    copy_rest(norm, row, dy, dx);
  }
}

void backward(const HeadNormBackwardCall& call) {
  typed(call.dy, [&](const auto* dy) {
    typed(call.norm.x, [&](const auto* x) {
      if (!call.dots_known) sum_dots(call, dy, x);
      if (call.dx.data == nullptr) return;
      typed(call.dx, [&](auto* dx) { differentiate(call, dy, x, dx); });
    });
  });
}

}  // namespace

const HeadNormKernels head_norm_kernels = {forward, backward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
