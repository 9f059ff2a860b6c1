// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/gated_delta.hpp"

namespace maestro {

Var gated_delta(Tape& tape, const Var& x, const BlockWeights& weights, const BlockOptions& options,
                const SequenceLayout& layout) {
  const DeltaShape& shape = options.delta;
  const std::int64_t rows = x.value().rows(), values = shape.value_columns(), inputs = shape.qkv_columns();
  Var qkv = slice(tape, x, 0, inputs);
  const Var z = slice(tape, x, inputs, values), gates = slice(tape, x, inputs + values, 2 * shape.value_heads);
  const LayerCache* const cache = options.cache;
  qkv = cache != nullptr ? cached_conv(tape, qkv, weights.filter, options.convolution, *cache)
                         : context_conv(tape, qkv, weights.filter, options.convolution, layout, options.context_group);
  const Var out = cache != nullptr ? cached_delta(tape, qkv, gates, weights.delta, shape, *cache)
                                   : delta_rule(tape, qkv, gates, weights.delta, shape, layout, options.context_group);
  const Var heads = reshaped(tape, out, Shape{rows * shape.value_heads, shape.value_size});
  const Var normed = rms_norm(tape, heads, *weights.delta_norm, options.norm.epsilon);
  return glu(tape, concat(tape, {z, reshaped(tape, normed, Shape{rows, values})}), GluGate::silu);
}

}  // namespace maestro
