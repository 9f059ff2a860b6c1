// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/latent/latent_rows.cuh"
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

void latent_heads(const Launch& at, const LatentHeads& op) {
  with_type(op.qkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch_rows(at, "latent_heads", op.qkv.rows(), op.qkv.columns(),
                LatentRows<T>{element::LatentColumns::of(op.shape), op.queries.data<T>(), op.keys.data<T>(),
                              op.rope.data<T>(), op.qkv.data<T>()});
  });
}

void latent_heads_backward(const Launch& at, const LatentHeadsBackward& op) {
  const LatentShape& shape = op.shape;
  with_type(op.dqkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch_rows(at, "latent_heads_backward", op.dqkv.rows(),
                shape.query_columns() + shape.key_columns() + shape.rope_size,
                LatentGradientRows<T>{element::LatentColumns::of(shape), op.dqkv.data<T>(), op.dqueries.data<T>(),
                                      op.dkeys.data<T>(), op.drope.data<T>()});
  });
}

}  // namespace maestro::cuda
