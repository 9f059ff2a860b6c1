// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/latent/latent_heads.hpp"

#include <algorithm>
#include <cassert>

#include "runtime/ops/latent_math.hpp"

namespace maestro::cpu {

namespace {

using element::LatentColumns;

template <class T>
void lay_out(const LatentHeads& op) {
  const LatentColumns columns = LatentColumns::of(op.shape);
  const T *query = op.queries.data<T>(), *key = op.keys.data<T>();
  T* to = op.qkv.data<T>();
  for (std::int64_t row = 0; row < op.qkv.rows(); ++row, to += 3 * columns.all()) {
    const T* const rope = op.rope.data<T>() + row * columns.rope;
    for (int head = 0; head < columns.heads; ++head, query += columns.size, key += columns.key()) {
      T* const own = to + head * columns.size;
      T* const own_key = own + columns.all();
      T* const value = own_key + columns.all();
      for (int at = 0; at < columns.rope; ++at) {
        own[columns.turned(at)] = query[columns.nope() + at];
        own_key[columns.turned(at)] = rope[at];
      }
      std::copy_n(query, columns.nope(), own + columns.rope);
      std::copy_n(key, columns.nope(), own_key + columns.rope);
      std::copy_n(key + columns.nope(), columns.value, value);
      std::fill_n(value + columns.value, columns.size - columns.value, T());
    }
  }
}

template <class T>
void take_apart(const LatentHeadsBackward& op) {
  const LatentColumns columns = LatentColumns::of(op.shape);
  T *query = op.dqueries.data<T>(), *key = op.dkeys.data<T>();
  const T* from = op.dqkv.data<T>();
  for (std::int64_t row = 0; row < op.dqkv.rows(); ++row, from += 3 * columns.all()) {
    T* const rope = op.drope.data<T>() + row * columns.rope;
    for (int head = 0; head < columns.heads; ++head, query += columns.size, key += columns.key()) {
      const T* const own = from + head * columns.size;
      const T* const own_key = own + columns.all();
      std::copy_n(own + columns.rope, columns.nope(), query);
      std::copy_n(own_key + columns.rope, columns.nope(), key);
      std::copy_n(own_key + columns.all(), columns.value, key + columns.nope());
      for (int at = 0; at < columns.rope; ++at) query[columns.nope() + at] = own[columns.turned(at)];
    }
    for (int at = 0; at < columns.rope; ++at) {
      const T* const first = from + columns.all() + columns.turned(at);
      float sum = 0;
      for (int head = 0; head < columns.heads; ++head) sum += static_cast<float>(first[head * columns.size]);
      rope[at] = T(sum);
    }
  }
}

}  // namespace

void latent_heads(const LatentHeads& op) {
  assert(op.queries.columns() == op.shape.query_columns() && op.keys.columns() == op.shape.key_columns());
  assert(op.rope.columns() == op.shape.rope_size && op.qkv.columns() == 3 * op.shape.query_columns());
  op.qkv.dtype() == DType::bf16 ? lay_out<bfloat16>(op) : lay_out<float>(op);
}

void latent_heads_backward(const LatentHeadsBackward& op) {
  assert(op.dqueries.columns() == op.shape.query_columns() && op.dkeys.columns() == op.shape.key_columns());
  assert(op.drope.columns() == op.shape.rope_size && op.dqkv.columns() == 3 * op.shape.query_columns());
  op.dqkv.dtype() == DType::bf16 ? take_apart<bfloat16>(op) : take_apart<float>(op);
}

}  // namespace maestro::cpu
