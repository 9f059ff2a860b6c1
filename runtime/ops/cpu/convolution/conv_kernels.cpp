// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/convolution/conv_kernels.hpp"

#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

template <class T>
MAESTRO_INLINE const T* of_type(const void* memory) {
  return static_cast<const T*>(memory);
}

/// Returns the term's row times its gate, from element i on.
template <class T, class Access>
MAESTRO_INLINE Vec input(const ConvTerm& term, std::int64_t i, Access part) {
  const Vec value = part.load(of_type<T>(term.value) + i);
  return term.gate == nullptr ? value : value * part.load(of_type<T>(term.gate) + i);
}

/// Returns the filter's sum, in the order of the terms.
template <class T, class Access>
MAESTRO_INLINE Vec filtered(const ConvRow& row, std::int64_t i, Access part) {
  Vec sum = row.bias == nullptr ? Vec{} : part.load(row.bias + i);
  for (std::int64_t term = 0; term < row.count; ++term) {
    sum += part.load(row.terms[term].weight + i) * input<T>(row.terms[term], i, part);
  }
  return sum;
}

template <class T>
void forward_row(const ConvRow& row, Out y) {
  T* to = static_cast<T*>(y.data);
  for_vectors(row.channels, [&](std::int64_t i, auto part) {
    Vec value = filtered<T>(row, i, part);
    if (row.silu) value = value * sigmoid(value);
    if (row.out_gate != nullptr) value = value * part.load(of_type<T>(row.out_gate) + i);
    part.store(to + i, value);
  });
}

template <class T>
void backward_row(const ConvRowBackward& call) {
  const ConvRow& row = call.row;
  const T* dy = of_type<T>(call.dy.data);
  for_vectors(row.channels, [&](std::int64_t i, auto part) {
    Vec value = filtered<T>(row, i, part);
    Vec slope = broadcast(1.0F);
    if (row.silu) {
      const Vec s = sigmoid(value);
      slope = s * (1.0F + value * (1.0F - s));
      value = value * s;
    }
    Vec d = part.load(dy + i);
    if (row.out_gate != nullptr) {
      if (call.dout_gate.data != nullptr) part.store(static_cast<T*>(call.dout_gate.data) + i, d * value);
      d = d * part.load(of_type<T>(row.out_gate) + i);
    }
    d = d * slope;
    part.store(call.dsum + i, d);
    if (call.dbias != nullptr) part.store(call.dbias + i, part.load(call.dbias + i) + d);
    for (std::int64_t term = 0; term < row.count; ++term) {
      float* dweight = row.terms[term].dweight;
      if (dweight != nullptr) part.store(dweight + i, part.load(dweight + i) + d * input<T>(row.terms[term], i, part));
    }
  });
}

template <class T>
void input_row(const ConvInputBackward& call) {
  for_vectors(call.channels, [&](std::int64_t i, auto part) {
    Vec du = {};
    for (std::int64_t term = 0; term < call.count; ++term) {
      du += part.load(call.terms[term].weight + i) * part.load(of_type<float>(call.terms[term].value) + i);
    }
    if (call.gate != nullptr) {
      part.store(static_cast<T*>(call.dgate.data) + i, du * part.load(of_type<T>(call.value) + i));
      du = du * part.load(of_type<T>(call.gate) + i);
    }
    part.store(static_cast<T*>(call.dvalue.data) + i, du);
  });
}

void forward(const ConvRow& row, Out y) {
  row.bf16 ? forward_row<std::uint16_t>(row, y) : forward_row<float>(row, y);
}

void backward(const ConvRowBackward& call) {
  call.row.bf16 ? backward_row<std::uint16_t>(call) : backward_row<float>(call);
}

void backward_input(const ConvInputBackward& call) {
  call.dvalue.bf16 ? input_row<std::uint16_t>(call) : input_row<float>(call);
}

}  // namespace

const ConvKernels conv_kernels = {forward, backward, backward_input};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
