// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/flat_kernels.hpp"

#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

template <class Moment>
MAESTRO_INLINE void adamw_with(const AdamWCall& call, Moment* means) {
  auto* const variances = static_cast<Moment*>(call.variance.data);
  for_vectors(call.count, [=, c = call](std::int64_t i, auto part) {
    Vec value = part.load(c.value + i);
    const Vec gradient = part.load(c.gradient + i);
    Vec mean = part.load(means + i);
    Vec variance = part.load(variances + i);
    c.step.template update<VectorMath>(value, gradient, mean, variance);
    if constexpr (sizeof(Moment) == 2) c.step.template rounded_at_random<VectorMath>(gradient, mean, variance);
    part.store(c.value + i, value);
    part.store(means + i, mean);
    part.store(variances + i, variance);
    part.store(c.gradient + i, Vec{});
  });
}

void adamw(const AdamWCall& call) {
  typed(call.mean, [&](auto* means) { adamw_with(call, means); });
}

using DVec = double __attribute__((vector_size(8 * vector_width)));

/// Adds through a reference: the ABI does not define how a vector wider than the CPU's is returned.
MAESTRO_INLINE void add_squares(DVec& sum, Vec value) {
  const DVec wide = __builtin_convertvector(value, DVec);
  sum += wide * wide;
}

double sum_of_squares(const float* values, std::int64_t count) {
  DVec sum[2] = {};
  std::int64_t i = 0;
  for (; i + 2 * vector_width <= count; i += 2 * vector_width) {
    add_squares(sum[0], load(values + i));
    add_squares(sum[1], load(values + i + vector_width));
  }
  for (; i + vector_width <= count; i += vector_width) add_squares(sum[0], load(values + i));
  if (i < count) add_squares(sum[1], load_part(values + i, count - i));
  const DVec both = sum[0] + sum[1];
  double total = 0;
  for (int lane = 0; lane < vector_width; ++lane) total += both[lane];
  return total;
}

}  // namespace

const FlatKernels flat_kernels = {adamw, sum_of_squares};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
