// SPDX-License-Identifier: Apache-2.0
// The gated delta rule by chunks, a block for a sample and a key head; formulas: delta_kernels.hpp of the CPU. Tiles
// lie in the device's memory, and a block's threads share the elements of each product: a plain form, without tensor
// cores. For kernel sources.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/delta_math.hpp"
#include "runtime/ops/delta_operators.hpp"

namespace maestro::cuda {

inline constexpr int delta_threads = 256;
inline constexpr int delta_rows = static_cast<int>(delta_chunk);

/// A sample's rows, and all heads' states before and after them; null: zeros, or not wanted.
struct DeltaSample {
  std::int64_t first;
  std::int64_t rows;
  const float* before;
  float* after;
  std::int64_t place;  ///< place of the first chunk's state among kept states
};

/// A layout's samples.
struct DeltaSamples {
  const std::int32_t* offsets;  // (samples + 1)

  [[nodiscard]] __device__ DeltaSample at(int sample) const {
    const std::int64_t first = offsets[sample];
    return {first, offsets[sample + 1] - first, nullptr, nullptr, delta_state_place(first, sample)};
  }
};

/// A sequence's rows, or a row from each sequence.
struct DeltaSequences {
  const CachedSequence* sequences;  // or null
  float* states;
  std::int64_t elements;  // of a state
  std::int64_t rows;
  bool begins;

  [[nodiscard]] __device__ DeltaSample at(int sample) const {
    if (sequences == nullptr) return {0, rows, begins ? nullptr : states, states, 0};
    float* state = states + sequences[sample].begin * elements;
    return {sample, 1, sequences[sample].rows == 0 ? nullptr : state, state, 0};
  }
};

/// Heads of a call as numbers for threads.
struct DeltaSizes {
  int key_heads;
  int value_heads;
  int dk;
  int dv;
  [[nodiscard]] __host__ __device__ int heads() const { return value_heads / key_heads; }
  [[nodiscard]] __host__ __device__ int inputs() const { return 2 * key_heads * dk + value_heads * dv; }
  /// Returns the floats that a block needs.
  [[nodiscard]] __host__ __device__ std::int64_t working(bool backward) const {
    const std::int64_t pairs = std::int64_t{delta_rows} * delta_rows, keys = std::int64_t{delta_rows} * dk;
    const std::int64_t values = std::int64_t{delta_rows} * dv, states = std::int64_t{heads()} * dk * dv;
    const std::int64_t forward = 2 * keys + 3 * values + 4 * pairs + 7 * delta_rows + states;
    return backward ? forward + 5 * keys + 2 * values + 2 * pairs + 2 * delta_rows + states : forward;
  }
};

template <class T>
struct DeltaInputs {
  DeltaSizes sizes;
  const T* qkv;
  const T* gates;
  const float* a_log;
  const float* dt_bias;
  float* working;  // sizes.working() floats for each block
};

/// A matrix by strides.
struct DeltaFactor {
  const float* data;
  int row;
  int step;
};

/// Calls body(i) for i below `count`, shared by the block's threads, and waits for all.
template <class Body>
__device__ void block_each(int count, const Body& body) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) body(i);
  __syncthreads();
}

/// Computes to(row, column) = sum of a(row, i) b(i, column) over i below `depth`: calls body(element, sum).
template <class Body>
__device__ void block_product(const DeltaFactor& a, const DeltaFactor& b, int rows, int columns, int depth,
                              const Body& body) {
  block_each(rows * columns, [&](int element) {
    const float* left = a.data + element / columns * a.row;
    const float* right = b.data + element % columns * b.step;
    float sum = 0;
    for (int i = 0; i < depth; ++i) sum += left[i * a.step] * right[i * b.row];
    body(element, sum);
  });
}

/// A block's chunk: the tiles and what both passes compute.
template <class T>
struct DeltaBlock {
  using Gates = element::DeltaGatesOf<element::Scalar>;

  const DeltaInputs<T>& call;
  int heads, dk, dv, inputs;
  float *q, *k, *v, *n, *out;                                 // (chunk, dk) or (chunk, dv)
  float *kk, *qk, *a, *p;                                     // (chunk, chunk)
  float *length_q, *length_k, *beta, *g, *c, *e, *until_end;  // (chunk)
  float* state;                                               // (heads, dk, dv)
  float* more;                                                // what only the backward pass has
  std::int64_t first = 0;
  int rows = 0;
  int key_head = 0;

  __device__ DeltaBlock(const DeltaInputs<T>& of, bool backward)
      : call(of), heads(of.sizes.heads()), dk(of.sizes.dk), dv(of.sizes.dv), inputs(of.sizes.inputs()) {
    float* at = of.working + blockIdx.x * of.sizes.working(backward);
    const auto take = [&](float*& tile, int columns) {
      tile = at;
      at += delta_rows * columns;
    };
    take(q, dk), take(k, dk), take(v, dv), take(n, dv), take(out, dv);
    take(kk, delta_rows), take(qk, delta_rows), take(a, delta_rows), take(p, delta_rows);
    take(length_q, 1), take(length_k, 1), take(beta, 1), take(g, 1), take(c, 1), take(e, 1), take(until_end, 1);
    state = at;
    more = at + heads * dk * dv;
  }

  [[nodiscard]] __device__ const T* row_of(int row) const { return call.qkv + (first + row) * inputs; }
  [[nodiscard]] __device__ std::int64_t gate_at(int row, int head) const {
    return (first + row) * 2 * call.sizes.value_heads + head;
  }
  [[nodiscard]] __device__ float query_scale() const { return 1.0F / sqrtf(static_cast<float>(dk)); }

  __device__ void load_normed(float* tile, float* inverse, int column, float factor) {
    block_each(rows * dk, [&](int i) { tile[i] = to_float(row_of(i / dk)[column + i % dk]); });
    block_each(rows, [&](int row) {
      float squares = element::delta_norm_epsilon;
      for (int i = 0; i < dk; ++i) squares += tile[row * dk + i] * tile[row * dk + i];
      inverse[row] = 1.0F / sqrtf(squares);
    });
    block_each(rows * dk, [&](int i) { tile[i] *= inverse[i / dk] * factor; });
  }

  __device__ void load_keys() {
    load_normed(q, length_q, key_head * dk, query_scale());
    load_normed(k, length_k, (call.sizes.key_heads + key_head) * dk, 1.0F);
    const DeltaFactor keys{k, 1, dk};
    const auto pair = [&](float* to) {
      return [this, to](int i, float sum) { to[i / rows * delta_rows + i % rows] = sum; };
    };
    block_product({k, dk, 1}, keys, rows, rows, dk, pair(kk));
    block_product({q, dk, 1}, keys, rows, rows, dk, pair(qk));
  }

  __device__ void load_value_head(int head, const float* s) {
    const int column = 2 * call.sizes.key_heads * dk + head * dv;
    block_each(rows * dv, [&](int i) { v[i] = to_float(row_of(i / dv)[column + i % dv]); });
    block_each(rows, [&](int row) {
      beta[row] = element::sigmoid(to_float(call.gates[gate_at(row, head)]));
      g[row] = Gates::decay(to_float(call.gates[gate_at(row, call.sizes.value_heads + head)]), call.a_log[head],
                            call.dt_bias[head]);
    });
    block_each(1, [&](int) {
      float sum = 0;
      for (int row = 0; row < rows; ++row) c[row] = sum += g[row];
    });
    block_each(rows, [&](int row) {
      e[row] = element::exponential(c[row]);
      until_end[row] = element::exponential(c[rows - 1] - c[row]);
    });
    block_each(rows * rows, [&](int i) {
      const int row = i / rows, column_of = i % rows, at = row * delta_rows + column_of;
      const float d = column_of <= row ? element::exponential(c[row] - c[column_of]) : 0.0F;
      a[at] = column_of < row ? beta[row] * d * kk[at] : 0.0F;
      p[at] = column_of <= row ? d * qk[at] : 0.0F;
    });
    block_product({k, dk, 1}, {s, dv, 1}, rows, dv, dk, [&](int i, float sum) {
      out[i] = sum;
      n[i] = beta[i / dv] * (v[i] - e[i / dv] * sum);
    });
    block_each(dv, [&](int j) {  // (I + A) N = N
      for (int i = 1; i < rows; ++i) {
        float value = n[i * dv + j];
        for (int l = 0; l < i; ++l) value -= a[i * delta_rows + l] * n[l * dv + j];
        n[i * dv + j] = value;
      }
    });
  }

  __device__ void results(const float* s, int head, T* to) {
    block_product({q, dk, 1}, {s, dv, 1}, rows, dv, dk, [&](int i, float sum) { out[i] = e[i / dv] * sum; });
    block_product({p, delta_rows, 1}, {n, dv, 1}, rows, dv, rows, [&](int i, float sum) {
      to[(first + i / dv) * call.sizes.value_heads * dv + head * dv + i % dv] = from_float<T>(out[i] + sum);
    });
  }

  __device__ void next_state(float* s) {
    block_each(dk * dv, [&](int i) {
      float sum = e[rows - 1] * s[i];
      for (int row = 0; row < rows; ++row) sum += until_end[row] * k[row * dk + i / dv] * n[row * dv + i % dv];
      s[i] = sum;
    });
  }

  /// Copies the key head's states from or to all heads' states.
  __device__ void load_states(const float* states) {
    const float* own = states + static_cast<std::int64_t>(key_head) * heads * dk * dv;
    block_each(heads * dk * dv, [&](int i) { state[i] = own[i]; });
  }
  __device__ void store_states(float* states) {
    float* own = states + static_cast<std::int64_t>(key_head) * heads * dk * dv;
    block_each(heads * dk * dv, [&](int i) { own[i] = state[i]; });
  }
};

template <class T, class Places>
__global__ void delta_rule_kernel(DeltaInputs<T> call, Places places, int samples, float* kept, T* out) {
  DeltaBlock<T> block(call, false);
  const int key_heads = call.sizes.key_heads;
  const std::int64_t elements = std::int64_t{call.sizes.value_heads} * block.dk * block.dv;
  for (int work = static_cast<int>(blockIdx.x); work < samples * key_heads; work += static_cast<int>(gridDim.x)) {
    const DeltaSample sample = places.at(work / key_heads);
    block.key_head = work % key_heads;
    if (sample.before == nullptr) {
      block_each(block.heads * block.dk * block.dv, [&](int i) { block.state[i] = 0; });
    } else {
      block.load_states(sample.before);
    }
    for (std::int64_t done = 0; done < sample.rows; done += delta_rows) {
      block.first = sample.first + done;
      block.rows = static_cast<int>(sample.rows - done < delta_rows ? sample.rows - done : delta_rows);
      if (kept != nullptr) block.store_states(kept + (sample.place + done / delta_rows) * elements);
      block.load_keys();
      for (int i = 0; i < block.heads; ++i) {
        float* state = block.state + i * block.dk * block.dv;
        const int head = block.key_head * block.heads + i;
        block.load_value_head(head, state);
        block.results(state, head, out);
        block.next_state(state);
      }
    }
    if (sample.after != nullptr && sample.rows > 0) block.store_states(sample.after);
  }
}

template <class T>
struct DeltaGradients {
  const T* dout;
  const float* kept;
  T* dqkv;
  T* dgates;
  float* da_log;    // (samples, Hv): each sample's part
  float* ddt_bias;  // (samples, Hv)
};

/// The backward pass of a block's chunk.
template <class T>
struct DeltaBlockBackward : DeltaBlock<T> {
  using Base = DeltaBlock<T>;
  using Base::a, Base::until_end, Base::beta, Base::c, Base::call, Base::dk, Base::dv, Base::e, Base::first, Base::g,
      Base::gate_at, Base::heads, Base::inputs, Base::k, Base::key_head, Base::kk, Base::n, Base::p, Base::q, Base::qk,
      Base::rows, Base::v;

  DeltaGradients<T> to;
  float *dout, *dr;                               // (chunk, dv)
  float *dq, *dkey, *by_query, *by_key, *by_end;  // (chunk, dk)
  float *dp, *h;                                  // (chunk, chunk)
  float *dc, *dbeta;                              // (chunk)
  float* dstate;                                  // (heads, dk, dv)

  __device__ DeltaBlockBackward(const DeltaInputs<T>& of, const DeltaGradients<T>& gradients)
      : Base(of, true), to(gradients) {
    float* at = this->more;
    const auto take = [&](float*& tile, int columns) {
      tile = at;
      at += delta_rows * columns;
    };
    take(dout, dv), take(dr, dv);
    take(dq, dk), take(dkey, dk), take(by_query, dk), take(by_key, dk), take(by_end, dk);
    take(dp, delta_rows), take(h, delta_rows), take(dc, 1), take(dbeta, 1);
    dstate = at;
  }

  __device__ void run_chunk(int sample) {
    this->load_keys();
    block_each(rows * dk, [&](int i) { dq[i] = dkey[i] = 0; });
    for (int i = 0; i < heads; ++i) {
      const int head = key_head * heads + i;
      value_head(head, this->state + i * dk * dv, dstate + i * dk * dv);
      gate_gradients(sample, head);
    }
    store_normed(dq, q, this->length_q, this->query_scale(), key_head * dk);
    store_normed(dkey, k, this->length_k, 1.0F, (call.sizes.key_heads + key_head) * dk);
  }

  __device__ void value_head(int head, const float* s, float* ds) {
    this->load_value_head(head, s);
    const int stride = call.sizes.value_heads * dv;
    block_each(rows * dv, [&](int i) { dout[i] = to_float(to.dout[(first + i / dv) * stride + head * dv + i % dv]); });
    block_product({p, 1, delta_rows}, {dout, dv, 1}, rows, dv, rows, [&](int i, float sum) { dr[i] = sum; });
    block_product({k, dk, 1}, {ds, dv, 1}, rows, dv, dk, [&](int i, float sum) { dr[i] += until_end[i / dv] * sum; });
    block_each(dv, [&](int j) {  // (I + A)^T dR = dN
      for (int i = rows - 2; i >= 0; --i) {
        float value = dr[i * dv + j];
        for (int l = i + 1; l < rows; ++l) value -= a[l * delta_rows + i] * dr[l * dv + j];
        dr[i * dv + j] = value;
      }
    });
    const auto faded = [&](int i, bool with_own) {
      const int row = i / rows, column = i % rows;
      const bool seen = with_own ? column <= row : column < row;
      return seen ? element::exponential(c[row] - c[column]) : 0.0F;
    };
    const auto place = [&](int i) { return i / rows * delta_rows + i % rows; };
    const DeltaFactor by_n{n, 1, dv};
    block_product({dout, dv, 1}, by_n, rows, rows, dv, [&](int i, float sum) { dp[place(i)] = sum * faded(i, true); });
    block_product({dr, dv, 1}, by_n, rows, rows, dv, [&](int i, float sum) { h[place(i)] = -sum * faded(i, false); });
    const DeltaFactor by_state{s, 1, dv};
    block_product({dout, dv, 1}, by_state, rows, dk, dv, [&](int i, float sum) { by_query[i] = sum; });
    block_product({dr, dv, 1}, by_state, rows, dk, dv, [&](int i, float sum) { by_key[i] = sum; });
    block_product({n, dv, 1}, {ds, 1, dv}, rows, dk, dv, [&](int i, float sum) { by_end[i] = sum; });
    block_each(rows, [&](int row) { row_gradients(row); });
    end_gradient(s, ds);
    key_gradients();
    block_each(dk * dv, [&](int i) {
      float sum = e[rows - 1] * ds[i];
      for (int row = 0; row < rows; ++row) {
        const int key = row * dk + i / dv, value = row * dv + i % dv;
        sum += e[row] * (q[key] * dout[value] - beta[row] * k[key] * dr[value]);
      }
      ds[i] = sum;
    });
    const int column = 2 * call.sizes.key_heads * dk + head * dv;
    block_each(rows * dv, [&](int i) {
      to.dqkv[(first + i / dv) * inputs + column + i % dv] = from_float<T>(beta[i / dv] * dr[i]);
    });
  }

  [[nodiscard]] __device__ static float dot(const float* x, const float* y, int count) {
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += x[i] * y[i];
    return sum;
  }

  /// Computes dbeta and dc of a row, the latter without what the state after the chunk adds.
  __device__ void row_gradients(int row) {
    const float* own_k = k + row * dk;
    const float by_k = -e[row] * dot(by_key + row * dk, own_k, dk);
    float sum = e[row] * dot(by_query + row * dk, q + row * dk, dk) + beta[row] * by_k;
    float sum_beta = dot(dr + row * dv, v + row * dv, dv) + by_k;
    for (int other = 0; other < rows; ++other) {
      const int at = row * delta_rows + other, flipped = other * delta_rows + row;
      sum += dp[at] * qk[at] + h[at] * beta[row] * kk[at];
      sum -= dp[flipped] * qk[flipped] + h[flipped] * beta[other] * kk[flipped];
      sum_beta += h[at] * kk[at];
    }
    dc[row] = sum - until_end[row] * dot(by_end + row * dk, own_k, dk);
    dbeta[row] = sum_beta;
  }

  /// Adds to dc of the last row what the state after the chunk passes back.
  __device__ void end_gradient(const float* s, const float* ds) {
    MAESTRO_SHARED(float, sums, delta_threads);
    const int thread = static_cast<int>(threadIdx.x);
    float sum = 0;
    for (int i = thread; i < dk * dv; i += static_cast<int>(blockDim.x)) sum += s[i] * ds[i];
    sums[thread] = sum;
    __syncthreads();
    block_each(1, [&](int) {
      float all = 0;
      for (int i = 0; i < static_cast<int>(blockDim.x); ++i) all += sums[i];
      float last = e[rows - 1] * all;
      for (int row = 0; row < rows; ++row) last += until_end[row] * dot(by_end + row * dk, k + row * dk, dk);
      dc[rows - 1] += last;
    });
  }

  /// Adds a value head's part to dq and dk.
  __device__ void key_gradients() {
    block_each(rows * dk, [&](int i) {
      const int row = i / dk, column = i % dk;
      float query = e[row] * by_query[i], key = until_end[row] * by_end[i] - beta[row] * e[row] * by_key[i];
      for (int other = 0; other < rows; ++other) {
        const int at = row * delta_rows + other, flipped = other * delta_rows + row;
        query += dp[at] * k[other * dk + column];
        key += dp[flipped] * q[other * dk + column];
        key += (beta[row] * h[at] + beta[other] * h[flipped]) * k[other * dk + column];
      }
      dq[i] += query;
      dkey[i] += key;
    });
  }

  __device__ void gate_gradients(int sample, int head) {
    block_each(1, [&](int) {
      const int value_heads = call.sizes.value_heads;
      float dg = 0, a_log = 0, dt_bias = 0;
      for (int row = rows - 1; row >= 0; --row) {
        dg += dc[row];
        a_log += dg * g[row];
        const float gate = to_float(call.gates[gate_at(row, value_heads + head)]);
        const float da = dg * Base::Gates::decay_slope(gate, call.a_log[head], call.dt_bias[head]);
        dt_bias += da;
        to.dgates[gate_at(row, head)] = from_float<T>(dbeta[row] * beta[row] * (1.0F - beta[row]));
        to.dgates[gate_at(row, value_heads + head)] = from_float<T>(da);
      }
      to.da_log[sample * value_heads + head] += a_log;
      to.ddt_bias[sample * value_heads + head] += dt_bias;
    });
  }

  /// Stores the gradient of rows before they were divided by their lengths and multiplied by `factor`.
  __device__ void store_normed(const float* dy, const float* y, const float* inverse, float factor, int column) {
    block_each(rows, [&](int row) { dc[row] = dot(dy + row * dk, y + row * dk, dk) * inverse[row] / factor; });
    block_each(rows * dk, [&](int i) {
      const int row = i / dk;
      to.dqkv[(first + row) * inputs + column + i % dk] = from_float<T>(dy[i] * inverse[row] * factor - dc[row] * y[i]);
    });
  }
};

template <class T>
__global__ void delta_rule_backward_kernel(DeltaInputs<T> call, DeltaSamples places, int samples,
                                           DeltaGradients<T> gradients) {
  DeltaBlockBackward<T> block(call, gradients);
  const int key_heads = call.sizes.key_heads;
  const std::int64_t elements = std::int64_t{call.sizes.value_heads} * block.dk * block.dv;
  for (int work = static_cast<int>(blockIdx.x); work < samples * key_heads; work += static_cast<int>(gridDim.x)) {
    const int number = work / key_heads;
    const DeltaSample sample = places.at(number);
    block.key_head = work % key_heads;
    block_each(block.heads * block.dk * block.dv, [&](int i) { block.dstate[i] = 0; });
    block_each(block.heads, [&](int i) {
      const int at = number * call.sizes.value_heads + block.key_head * block.heads + i;
      gradients.da_log[at] = gradients.ddt_bias[at] = 0;
    });
    for (std::int64_t chunk = (sample.rows + delta_rows - 1) / delta_rows - 1; chunk >= 0; --chunk) {
      const std::int64_t done = chunk * delta_rows;
      block.first = sample.first + done;
      block.rows = static_cast<int>(sample.rows - done < delta_rows ? sample.rows - done : delta_rows);
      block.load_states(gradients.kept + (sample.place + chunk) * elements);
      block.run_chunk(number);
    }
  }
}

/// Adds the samples' parts of a weight's gradient in their order; a row is a head.
struct DeltaWeightSums {
  const float* parts;  // (samples, Hv)
  int samples;
  int heads;
  float* to;  // (Hv)

  __device__ void operator()(std::int64_t head, int) const {
    float sum = 0;
    for (int sample = 0; sample < samples; ++sample) sum += parts[sample * heads + head];
    to[head] += sum;
  }
};

}  // namespace maestro::cuda
