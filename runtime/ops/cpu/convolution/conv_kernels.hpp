// SPDX-License-Identifier: Apache-2.0
// A row of a causal convolution (operators.hpp, CausalConv), from the rows that it reads. Storage is f32 or bf16,
// arithmetic is f32.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// A row that a result reads; its columns are adjacent.
struct ConvTerm {
  const void* value;    ///< (channels)
  const void* gate;     ///< (channels), or null: 1
  const float* weight;  ///< (channels), the filter's row
  float* dweight;       ///< (channels), accumulated; backward only; null: frozen
};

struct ConvRow {
  const ConvTerm* terms;
  std::int64_t count;
  const float* bias;     ///< (channels), or null
  const void* out_gate;  ///< (channels), or null: 1
  std::int64_t channels;
  bool silu;
  bool bf16;  ///< storage of values and gates
};

struct ConvRowBackward {
  ConvRow row;
  In dy;
  float* dsum;    ///< (channels), written
  Out dout_gate;  ///< (channels), written; null: not wanted
  float* dbias;   ///< (channels), accumulated; null: frozen
};

/// The gradient of a row that results read: du = sum of weight x value over `terms`, whose values are f32.
struct ConvInputBackward {
  const ConvTerm* terms;
  std::int64_t count;
  const void* value;  ///< (channels) of the row itself; only with a gate
  const void* gate;   ///< (channels), or null: 1
  Out dvalue;         ///< (channels), written
  Out dgate;          ///< (channels), written; only with a gate
  std::int64_t channels;
};

struct ConvKernels {
  void (*forward)(const ConvRow& row, Out y);
  void (*backward)(const ConvRowBackward& call);
  void (*backward_input)(const ConvInputBackward& call);
};
MAESTRO_KERNELS(ConvKernels, conv_kernels)

}  // namespace maestro::cpu
