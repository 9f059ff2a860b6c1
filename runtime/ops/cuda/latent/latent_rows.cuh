// SPDX-License-Identifier: Apache-2.0
// Bodies for for_rows_kernel of latent attention's heads; formulas: LatentHeads, LatentHeadsBackward. For kernel
// sources.
#pragma once

#include "runtime/ops/cuda/rows/pointwise.cuh"
#include "runtime/ops/latent_math.hpp"

namespace maestro::cuda {

/// An item is a column of qkv.
template <class T>
struct LatentRows {
  element::LatentColumns columns;
  const T* queries;
  const T* keys;
  const T* rope;
  T* qkv;

  __device__ void operator()(std::int64_t row, int item) const {
    const int part = item / columns.all(), head = item % columns.all() / columns.size, at = item % columns.size;
    const T* const query = queries + (row * columns.heads + head) * columns.size;
    const T* const key = keys + (row * columns.heads + head) * columns.key();
    T value{};
    if (part == 2) {
      if (at < columns.value) value = key[columns.nope() + at];
    } else if (at >= columns.rope) {
      value = (part == 0 ? query : key)[at - columns.rope];
    } else {
      const int from = columns.unturned(at);
      value = part == 0 ? query[columns.nope() + from] : rope[row * columns.rope + from];
    }
    qkv[row * 3 * columns.all() + item] = value;
  }
};

/// An item is a column of dqueries, dkeys or drope, one after the other.
template <class T>
struct LatentGradientRows {
  element::LatentColumns columns;
  const T* dqkv;
  T* dqueries;
  T* dkeys;
  T* drope;

  __device__ void operator()(std::int64_t row, int item) const {
    const int all = columns.all(), nope = columns.nope(), keys = columns.heads * columns.key();
    const T* const from = dqkv + row * 3 * all;
    if (item < all) {
      const int head = item / columns.size, at = item % columns.size;
      const int place = at < nope ? columns.rope + at : columns.turned(at - nope);
      dqueries[row * all + item] = from[head * columns.size + place];
    } else if (item < all + keys) {
      const int own = item - all, head = own / columns.key(), at = own % columns.key();
      const int first = at < nope ? all + columns.rope + at : 2 * all + at - nope;
      dkeys[row * keys + own] = from[first + head * columns.size];
    } else {
      const int own = item - all - keys, first = all + columns.turned(own);
      float sum = 0;
      for (int head = 0; head < columns.heads; ++head) sum += to_float(from[first + head * columns.size]);
      drope[row * columns.rope + own] = from_float<T>(sum);
    }
  }
};

}  // namespace maestro::cuda
