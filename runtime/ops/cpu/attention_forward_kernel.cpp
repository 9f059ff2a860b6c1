#include "runtime/ops/cpu/attention_products.hpp"
#include "runtime/ops/cpu/attention_tiles.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

/// Turns a row of scores into exp(score - max), masks what lies at or above `visible`, and moves the running
/// statistics. Returns what earlier sums of this row must be multiplied with.
inline float softmax_row(float* scores, std::int64_t visible, std::int64_t vectors, float& max, float* sum) {
  constexpr float masked = -3.0e38F;
  const IVec lane = lane_numbers();
  Vec top = broadcast(max);
  for (std::int64_t v = 0; v < vectors; ++v) {
    const IVec column = lane + static_cast<std::int32_t>(v * vector_width);
    const Vec score =
        select(column < static_cast<std::int32_t>(visible), load(scores + v * vector_width), broadcast(masked));
    store(scores + v * vector_width, score);
    top = maximum(top, score);
  }
  const float previous = max;
  max = reduce_max(top);
  const Vec offset = broadcast(max);
  const float factor = max == previous ? 1.0F : exp_scalar(previous - max);
  Vec total = load(sum) * broadcast(factor);
  for (std::int64_t v = 0; v < vectors; ++v) {
    const IVec column = lane + static_cast<std::int32_t>(v * vector_width);
    const Vec p =
        select(column < static_cast<std::int32_t>(visible), exp(load(scores + v * vector_width) - offset), Vec{});
    store(scores + v * vector_width, p);
    total += p;
  }
  store(sum, total);
  return factor;
}

inline void scale_row(float* row, std::int64_t size, float factor) {
  for (std::int64_t i = 0; i < size; i += vector_width) store(row + i, load(row + i) * broadcast(factor));
}

/// Adds the keys of one tile to the queries [q0, q0 + rows).
void add_key_tile(const AttentionCall& call, std::int64_t q0, std::int64_t rows, std::int64_t k0) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  const std::int64_t keys = smaller(attention_key_tile, call.length - k0);
  const std::int64_t strip = strip_rows(call, q0, k0, keys);
  for (std::int64_t r = 0; r < rows; r += strip) {
    const std::int64_t height = smaller(strip, rows - r);
    const std::int64_t columns = visible_keys(call, q0 + r + height - 1, k0, keys);
    const std::int64_t vectors = (columns + vector_width - 1) / vector_width;
    float* scores = t.scores + r * attention_key_tile;
    multiply({.a = t.query + r * padded,
              .a_row = padded,
              .b = t.keys_tiles + k0 * padded,
              .b_step = attention_key_tile,
              .c = scores,
              .c_row = attention_key_tile,
              .rows = height,
              .vectors = vectors,
              .depth = call.head_size});
    for (std::int64_t i = 0; i < height; ++i) {
      const float factor = softmax_row(scores + i * attention_key_tile, visible_keys(call, q0 + r + i, k0, keys),
                                       vectors, t.row_max[r + i], t.row_sum + (r + i) * attention_padding);
      if (factor != 1.0F && k0 > 0) scale_row(t.result + (r + i) * padded, padded, factor);
    }
    multiply({.a = scores,
              .a_row = attention_key_tile,
              .b = t.values + k0 * padded,
              .b_step = padded,
              .c = t.result + r * padded,
              .c_row = padded,
              .rows = height,
              .vectors = padded / vector_width,
              .depth = columns,
              .accumulate = k0 > 0});
  }
}

void attend_query_tile(const AttentionCall& call, std::int64_t head, std::int64_t q0) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  const std::int64_t rows = smaller(attention_query_tile, call.length - q0);
  const float scale = 1.0F / square_root(static_cast<float>(call.head_size));
  const HeadRows queries = query_rows(call, call.qkv, head);
  for (std::int64_t r = 0; r < rows; ++r) {
    read_row(queries, q0 + r, call.head_size, scale, t.query + r * padded);
    t.row_max[r] = -3.0e38F;
    for (std::int64_t i = 0; i < attention_padding; ++i) t.row_sum[r * attention_padding + i] = 0;
  }
  const std::int64_t end = call.causal ? q0 + rows : call.length;
  for (std::int64_t k0 = 0; k0 < end; k0 += attention_key_tile) add_key_tile(call, q0, rows, k0);
  const HeadRows outs = out_rows(call, call.out, head);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float sum = reduce_sum(load(t.row_sum + r * attention_padding));
    write_row(outs, q0 + r, call.head_size, 1.0F / sum, t.result + r * padded);
    call.lse[(q0 + r) * call.heads + head] = t.row_max[r] + __builtin_logf(sum);
  }
}

}  // namespace

void attention_backward(const AttentionCall& call);  // attention_backward_kernel.cpp

void attention_forward(const AttentionCall& call) {
  const AttentionScratch& t = call.tiles;
  pack_rows(key_rows(call, call.qkv), call.length, call.head_size, t.keys);
  pack_transposed(t.keys, call.length, call.head_size, t.keys_tiles);
  pack_rows(value_rows(call, call.qkv), call.length, call.head_size, t.values);
  const std::int64_t shared_by = call.heads / call.kv_heads;
  for (std::int64_t i = 0; i < shared_by; ++i) {
    for (std::int64_t q0 = 0; q0 < call.length; q0 += attention_query_tile) {
      attend_query_tile(call, call.kv_head * shared_by + i, q0);
    }
  }
}

extern const AttentionKernels attention_kernels = {attention_forward, attention_backward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
