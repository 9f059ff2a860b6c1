// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/latent_functions.hpp"

#include "runtime/ops/call_checks.hpp"

namespace maestro {

Var latent_heads(Tape& tape, const Var& queries, const Var& keys, const Var& rope, const LatentShape& shape) {
  check_latent(queries.value(), keys.value(), rope.value(), shape);
  const std::int64_t rows = queries.value().rows();
  const DType act = queries.value().dtype();
  Var qkv = tape.output({rows, 3 * shape.query_columns()}, act,
                        queries.needs_gradient() || keys.needs_gradient() || rope.needs_gradient());
  tape.ops().run(LatentHeads{
      .queries = queries.value(), .keys = keys.value(), .rope = rope.value(), .shape = shape, .qkv = qkv.value()});
  if (!qkv.needs_gradient()) return qkv;
  tape.record(qkv, [&tape, queries, keys, rope, qkv, shape, act] {
    const Block dqueries = tape.scratch(queries.value().shape(), act);
    const Block dkeys = tape.scratch(keys.value().shape(), act);
    const Block drope = tape.scratch(rope.value().shape(), act);
    tape.ops().run(LatentHeadsBackward{.dqkv = qkv.gradient(),
                                       .shape = shape,
                                       .dqueries = dqueries.tensor(),
                                       .dkeys = dkeys.tensor(),
                                       .drope = drope.tensor()});
    if (queries.needs_gradient()) tape.add_gradient(queries, dqueries);
    if (keys.needs_gradient()) tape.add_gradient(keys, dkeys);
    if (rope.needs_gradient()) tape.add_gradient(rope, drope);
  });
  return qkv;
}

Var value_columns(Tape& tape, const Var& x, const LatentShape& shape) {
  if (shape.value_size == shape.head_size) return x;
  const std::int64_t rows = x.value().rows();
  const Var heads = reshaped(tape, x, Shape{rows * shape.heads, shape.head_size});
  return reshaped(tape, slice(tape, heads, 0, shape.value_size), Shape{rows, shape.heads * shape.value_size});
}

}  // namespace maestro
