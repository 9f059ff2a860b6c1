// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/vector_math_probe.hpp"

#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

void exp_of(const float* x, float* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) { part.store(y + i, exp(part.load(x + i))); });
}
void sigmoid_of(const float* x, float* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) { part.store(y + i, sigmoid(part.load(x + i))); });
}
void tanh_of(const float* x, float* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) { part.store(y + i, element::tanh_of(part.load(x + i))); });
}
void narrow(const float* x, std::uint16_t* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) { part.store(y + i, part.load(x + i)); });
}
void widen(const std::uint16_t* x, float* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) { part.store(y + i, part.load(x + i)); });
}
float sum(const float* x) {
  return reduce_sum(load(x));
}
float max(const float* x) {
  return reduce_max(load(x));
}
void transpose_of(const float* x, float* y) {
  Vec rows[vector_width];
  for (int i = 0; i < vector_width; ++i) rows[i] = load(x + i * vector_width);
  transpose(rows);
  for (int i = 0; i < vector_width; ++i) store(y + i * vector_width, rows[i]);
}

}  // namespace

const VectorMathProbe vector_math_probe = {vector_width, exp_of, sigmoid_of, tanh_of,     narrow,
                                           widen,        sum,    max,        transpose_of};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
