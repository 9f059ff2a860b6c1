// SPDX-License-Identifier: Apache-2.0
// Tolerances as in attention_test.cpp: 2e-5 of the largest value in f32, and also a rounding in bf16.
#include "runtime/ops/cpu/attention/cached_attention.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/ops/attention_arithmetic.hpp"
#include "tests/ops/owned_tensor.hpp"
#include "tests/ops/random_ends.hpp"

namespace maestro::cpu {
namespace {

using testing::exact_normals;
using testing::OwnedTensor;
using testing::Values;
using testing::worst_error;

/// A sequence's rows, (P, (H + 2G) D), and their attention in double precision.
struct Sequence {
  Sequence(std::int64_t count, const AttentionShape& its_shape, unsigned seed = 1) : rows(count), shape(its_shape) {
    std::mt19937 generator(seed);
    qkv = exact_normals(generator, rows * shape.qkv_columns());
  }
  [[nodiscard]] const double* slot(std::int64_t row, std::int64_t head) const {
    return qkv.data() + row * shape.qkv_columns() + head * shape.head_size;
  }
  [[nodiscard]] double score(std::int64_t query, std::int64_t key, std::int64_t head) const {
    const double* q = slot(query, head);
    const double* k = slot(key, shape.heads + head * shape.kv_heads / shape.heads);
    const double raw = shape.score_scale() * std::inner_product(q, q + shape.head_size, k, 0.0);
    return shape.softcap > 0 ? shape.softcap * std::tanh(raw / shape.softcap) : raw;
  }
  [[nodiscard]] Values attention(std::int64_t first, std::int64_t count) const {
    Values out;
    for (std::int64_t row = first; row < first + count; ++row) {
      for (std::int64_t head = 0; head < shape.heads; ++head) add_head(row, head, out);
    }
    return out;
  }
  [[nodiscard]] std::span<const std::int32_t> ends_of(std::int64_t first, std::int64_t count) const {
    if (ends.empty()) return {};
    return std::span(ends).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
  void add_head(std::int64_t row, std::int64_t head, Values& out) const {
    const std::int64_t begin = shape.window > 0 ? std::max<std::int64_t>(0, row + 1 - shape.window) : 0;
    const std::int64_t end = ends.empty() ? row + 1 : ends[static_cast<std::size_t>(row)];
    Values p;
    for (std::int64_t key = begin; key < end; ++key) p.push_back(score(row, key, head));
    const double top = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value - top);
    for (std::int64_t d = 0; d < shape.head_size; ++d) {
      double value = 0;
      for (std::int64_t key = begin; key < end; ++key) {
        const double* v = slot(key, shape.heads + shape.kv_heads + head * shape.kv_heads / shape.heads);
        value += p[static_cast<std::size_t>(key - begin)] / sum * v[d];
      }
      out.push_back(value);
    }
  }

  std::int64_t rows;
  AttentionShape shape;
  Values qkv;
  std::vector<std::int32_t> ends = {};
};

class CachedAttentionOnIsa : public ::testing::TestWithParam<testing::AttentionArithmetic> {
 protected:
  [[nodiscard]] DType act() const { return GetParam().act; }
  [[nodiscard]] double tolerance() const { return act() == DType::f32 ? 2e-5 : 1e-2; }

  /// Returns the results for a sequence that arrives in pieces of the given sizes; the cache has `spare` more rows.
  [[nodiscard]] Values in_pieces(const Sequence& sequence, const std::vector<std::int64_t>& pieces,
                                 std::int64_t spare = 3) const {
    const AttentionShape& shape = sequence.shape;
    const Shape cache{sequence.rows + spare, shape.kv_heads * shape.head_size};
    const OwnedTensor keys(act(), cache), values(act(), cache);
    keys.fill(1e6);
    values.fill(1e6);
    const OwnedTensor qkv(act(), Shape{sequence.rows, shape.qkv_columns()}, sequence.qkv);
    const OwnedTensor out(act(), Shape{sequence.rows, shape.out_columns()});
    ScratchPool scratch;
    std::int64_t first = 0;
    for (const std::int64_t count : pieces) {
      cached_attention(GetParam().isa, GetParam().bf16, scratch,
                       {.qkv = qkv.tensor().row_slice(first, count),
                        .shape = shape,
                        .keys = keys,
                        .values = values,
                        .first = first,
                        .out = out.tensor().row_slice(first, count),
                        .ends = sequence.ends_of(first, count)});
      first += count;
    }
    for (std::int64_t i = sequence.rows * keys.tensor().columns(); i < keys.tensor().elements(); ++i) {
      EXPECT_GT(keys.get(i) + values.get(i), 1.9e6);
    }
    return out.values();
  }
};

TEST_P(CachedAttentionOnIsa, agrees_with_double_precision_however_the_rows_arrive) {
  for (const std::int64_t size : {1, 7, 16, 40, 64, 80, 128}) {
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {3, 3}, {6, 2}, {9, 3}}) {
      const Sequence sequence(85, {heads, kv_heads, size, true}, static_cast<unsigned>(size));
      const Values wanted = sequence.attention(0, sequence.rows);
      SCOPED_TRACE(::testing::Message() << heads << " heads of " << size << " over " << kv_heads);
      EXPECT_LT(worst_error(in_pieces(sequence, {85}), wanted), tolerance());
      EXPECT_LT(worst_error(in_pieces(sequence, {1, 1, 30, 1, 40, 12}), wanted), tolerance());
    }
  }
}

TEST_P(CachedAttentionOnIsa, a_window_hides_older_keys) {
  for (const std::int64_t window : {1, 5, 64, 70, 300}) {
    SCOPED_TRACE(window);
    const Sequence sequence(150, {4, 2, 24, true, 0, window});
    const Values wanted = sequence.attention(0, sequence.rows);
    EXPECT_LT(worst_error(in_pieces(sequence, {100, 1, 49}), wanted), tolerance());
  }
}

TEST_P(CachedAttentionOnIsa, rows_see_later_rows_of_their_piece_up_to_their_ends) {
  std::mt19937 generator(7);
  for (const std::int64_t window : {0, 5, 70}) {
    SCOPED_TRACE(window);
    Sequence sequence(200, {4, 2, 24, true, 0, window});
    const std::vector<std::int64_t> pieces{1, 70, 1, 100, 27, 1};
    sequence.ends.clear();
    for (const std::int64_t piece : pieces) {  // no run is cut
      const auto first = static_cast<std::int32_t>(sequence.ends.size());
      for (const std::int32_t end : testing::random_ends(generator, {piece})) sequence.ends.push_back(first + end);
    }
    EXPECT_LT(worst_error(in_pieces(sequence, pieces), sequence.attention(0, sequence.rows)), tolerance());
  }
}

TEST_P(CachedAttentionOnIsa, a_row_of_each_sequence_has_the_bits_that_it_has_alone) {
  const AttentionShape shape{4, 2, 24, true, 0, 40, 5.0};
  const std::int64_t lengths[] = {1, 64, 7, 90};
  const Shape cache{4 * 100, shape.kv_heads * shape.head_size};
  const OwnedTensor keys(act(), cache), values(act(), cache);
  std::vector<CachedSequence> sequences;
  std::vector<Values> alone;
  Values rows;  // the last row of each sequence
  ScratchPool scratch;
  for (const std::int64_t length : lengths) {
    const Sequence sequence(length, shape, static_cast<unsigned>(length));
    const auto begin = static_cast<std::int32_t>(100 * (3 - std::ssize(sequences)));
    const OwnedTensor qkv(act(), Shape{length, shape.qkv_columns()}, sequence.qkv);
    const OwnedTensor out(act(), Shape{length, shape.out_columns()});
    const auto run = [&](std::int64_t first, std::int64_t count, const Tensor& own_keys, const Tensor& own_values) {
      cached_attention(GetParam().isa, GetParam().bf16, scratch,
                       {.qkv = qkv.tensor().row_slice(first, count),
                        .shape = shape,
                        .keys = own_keys,
                        .values = own_values,
                        .first = first,
                        .out = out.tensor().row_slice(first, count)});
    };
    run(0, length - 1, keys.tensor().row_slice(begin, 100), values.tensor().row_slice(begin, 100));
    const OwnedTensor own_keys(act(), {length, cache.columns()}), own_values(act(), {length, cache.columns()});
    run(0, length - 1, own_keys, own_values);
    run(length - 1, 1, own_keys, own_values);
    const Values all = out.values();
    alone.emplace_back(all.end() - shape.out_columns(), all.end());
    rows.insert(rows.end(), sequence.qkv.end() - shape.qkv_columns(), sequence.qkv.end());
    sequences.push_back({begin, static_cast<std::int32_t>(length - 1)});
  }
  const OwnedTensor qkv(act(), Shape{4, shape.qkv_columns()}, rows), out(act(), Shape{4, shape.out_columns()});
  cached_attention(GetParam().isa, GetParam().bf16, scratch,
                   {.qkv = qkv, .shape = shape, .keys = keys, .values = values, .out = out, .sequences = sequences});
  const Values together = out.values();
  for (std::size_t row = 0; row < alone.size(); ++row) {
    const auto first = together.begin() + static_cast<std::ptrdiff_t>(row) * shape.out_columns();
    EXPECT_EQ(Values(first, first + shape.out_columns()), alone[row]) << row;
  }
}

TEST_P(CachedAttentionOnIsa, scale_and_softcap_change_the_scores) {
  const Sequence sequence(70, {2, 1, 32, true, 0.5, 0, 3.0});
  EXPECT_LT(worst_error(in_pieces(sequence, {69, 1}), sequence.attention(0, sequence.rows)), tolerance());
}

TEST_P(CachedAttentionOnIsa, a_full_cache_and_no_rows_are_allowed) {
  const Sequence sequence(64, {2, 1, 16, true});
  EXPECT_LT(worst_error(in_pieces(sequence, {0, 63, 1, 0}, 0), sequence.attention(0, sequence.rows)), tolerance());
}

INSTANTIATE_TEST_SUITE_P(CachedAttention, CachedAttentionOnIsa, ::testing::ValuesIn(testing::attention_arithmetics()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace maestro::cpu
