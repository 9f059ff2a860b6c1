// SPDX-License-Identifier: Apache-2.0
// This project's attention kernels against the CPU's, over both dtypes, tile edges, head sizes and groups. Tolerances,
// relative to the largest value: f32 sums of a few hundred terms in another order, 2e-5; bf16 storage rounds results
// once (2^-9), and the device also rounds probabilities and their gradients before multiplication: 1.5e-2.
#include "runtime/ops/cuda/attention/flash_attention.hpp"

#include "tests/ops/cuda/kernel_test.hpp"
#include "tests/ops/query_parts.hpp"
#include "tests/ops/random_ends.hpp"

namespace maestro::cuda {
namespace {

using testing::exact_normals;
using testing::worst_error;

struct Problem {
  std::vector<std::int32_t> offsets{0};
  AttentionShape shape;
  Values qkv;
  Values dout;
  std::vector<std::int32_t> ends = {};
  Problem(const std::vector<std::int32_t>& lengths, const AttentionShape& s, unsigned seed = 1) : shape(s) {
    for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + length);
    std::mt19937 generator(seed);
    qkv = exact_normals(generator, rows() * shape.qkv_columns());
    dout = exact_normals(generator, rows() * shape.out_columns());
  }
  [[nodiscard]] std::int64_t rows() const { return offsets.back(); }
  [[nodiscard]] Shape qkv_shape() const { return Shape{rows(), shape.qkv_columns()}; }
  [[nodiscard]] Shape out_shape() const { return Shape{rows(), shape.out_columns()}; }
  [[nodiscard]] Shape lse_shape() const { return Shape{rows(), shape.heads}; }
};

struct Answer {
  Values out;
  Values lse;
  Values dqkv;
};

class FlashAttention : public KernelTest, public ::testing::WithParamInterface<DType> {
 protected:
  struct OnDevice {
    Tensor offsets;
    Tensor ends;
    Tensor qkv;
    Tensor dout;
    Tensor out;
    Tensor lse;
    Tensor dqkv;
  };

  [[nodiscard]] static DType act() { return GetParam(); }
  Tensor unwritten(DType dtype, const Shape& shape) {
    const OwnedTensor values(dtype, shape);
    values.fill(testing::unwritten);
    return upload(values);
  }
  OnDevice put(const Problem& problem) {
    const Values offsets(problem.offsets.begin(), problem.offsets.end());
    const Values ends(problem.ends.begin(), problem.ends.end());
    const auto list = [&](const Values& values) {
      return upload(OwnedTensor(DType::i32, Shape{static_cast<std::int64_t>(values.size())}, values));
    };
    return {.offsets = list(offsets),
            .ends = list(ends),
            .qkv = upload(OwnedTensor(act(), problem.qkv_shape(), problem.qkv)),
            .dout = upload(OwnedTensor(act(), problem.out_shape(), problem.dout)),
            .out = unwritten(act(), problem.out_shape()),
            .lse = unwritten(DType::f32, problem.lse_shape()),
            .dqkv = unwritten(act(), problem.qkv_shape())};
  }
  void compute(const OnDevice& memory, const AttentionShape& shape, const QueryPart& queries = {}) const {
    const SequenceLayout layout{.offsets = span_of(memory.offsets), .ends = span_of(memory.ends)};
    flash_attention(at_, {memory.qkv, shape, layout, memory.out, memory.lse, queries});
    flash_attention_backward(at_,
                             {memory.dout, memory.qkv, memory.out, memory.lse, shape, layout, memory.dqkv, queries});
  }
  Answer on_device(const Problem& problem, const QueryPart& queries = {}) {
    const OnDevice memory = put(problem);
    compute(memory, problem.shape, queries);
    check(cudaStreamSynchronize(stream_), "attention");
    return {download(memory.out), download(memory.lse), download(memory.dqkv)};
  }
  [[nodiscard]] Answer on_processor(const Problem& problem) const {
    const OwnedTensor qkv(act(), problem.qkv_shape(), problem.qkv);
    const OwnedTensor dout(act(), problem.out_shape(), problem.dout);
    const OwnedTensor out(act(), problem.out_shape());
    const OwnedTensor lse(DType::f32, problem.lse_shape());
    const OwnedTensor dqkv(act(), problem.qkv_shape());
    const SequenceLayout layout{.offsets = problem.offsets, .ends = problem.ends};
    reference_.run(Attention{.qkv = qkv, .shape = problem.shape, .layout = layout, .out = out, .lse = lse});
    reference_.run(AttentionBackward{
        .dout = dout, .qkv = qkv, .out = out, .lse = lse, .shape = problem.shape, .layout = layout, .dqkv = dqkv});
    return {out.values(), lse.values(), dqkv.values()};
  }
  void compare(const Problem& problem) { expect_close(on_device(problem), on_processor(problem)); }
  static void expect_close(const Answer& got, const Answer& wanted) {
    const double tolerance = act() == DType::f32 ? 2e-5 : 1.5e-2;
    EXPECT_LT(worst_error(got.out, wanted.out), tolerance);
    EXPECT_LT(worst_error(got.lse, wanted.lse), 2e-5);
    EXPECT_LT(worst_error(got.dqkv, wanted.dqkv), tolerance);
  }
};

TEST_P(FlashAttention, agrees_with_the_processor_over_tile_edges_and_head_sizes) {
  const std::vector<std::vector<std::int32_t>> all_lengths = {{1}, {7}, {33}, {64}, {129}, {65, 1, 31, 0, 17}};
  for (const auto& lengths : all_lengths) {
    for (const std::int64_t size : {16, 24, 64, 80, 128}) {
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(::testing::PrintToString(lengths) + " D " + std::to_string(size) + (causal ? " causal" : ""));
        compare(Problem(lengths, {2, 1, size, causal}, static_cast<unsigned>(size)));
      }
    }
  }
}

TEST_P(FlashAttention, agrees_with_the_processor_for_the_widest_heads) {
  for (const std::int64_t size : {136, 256}) {
    for (const bool causal : {true, false}) {
      SCOPED_TRACE("D " + std::to_string(size) + (causal ? " causal" : ""));
      compare(Problem({70, 5}, {2, 1, size, causal}));
    }
  }
}

TEST_P(FlashAttention, agrees_with_the_processor_for_windows_scales_and_soft_caps) {
  for (const std::int64_t size : {24, 80, 256}) {
    for (const std::int64_t window : {0, 1, 13, 100}) {
      for (const double softcap : {0.0, 2.0}) {
        if (size == 256 && window % 100 == 1) continue;  // tests nothing new, and slow
        SCOPED_TRACE("D " + std::to_string(size) + " window " + std::to_string(window) + " cap " +
                     std::to_string(softcap));
        const double scale = window == 13 ? 0.5 : 0;
        compare(Problem({140, 1, 0, 33}, {2, 1, size, true, scale, window, softcap}, static_cast<unsigned>(size)));
      }
    }
  }
  compare(Problem({70, 33}, {2, 2, 32, false, 0.3, 0, 3}));
}

TEST_P(FlashAttention, agrees_with_the_processor_for_ends) {
  std::mt19937 generator(9);
  const std::vector<std::vector<std::int64_t>> all_lengths = {{1, 130}, {64, 0, 33}, {200}};
  for (const auto& lengths : all_lengths) {
    for (const std::int64_t size : {24, 80, 136}) {
      for (const std::int64_t window : {0, 13, 70}) {
        SCOPED_TRACE(::testing::PrintToString(lengths) + " D " + std::to_string(size) + " window " +
                     std::to_string(window));
        Problem problem({lengths.begin(), lengths.end()}, {4, 2, size, true, 0, window, window == 13 ? 2.0 : 0.0});
        problem.ends = testing::random_ends(generator, lengths);
        compare(problem);
      }
    }
  }
}

TEST_P(FlashAttention, parts_of_the_queries_agree_with_the_processor) {
  struct Case {
    std::int64_t size;
    std::int64_t parts;
    bool causal;
    std::int64_t window;
    bool ends;
    std::int64_t first = 70;  // rows of the first sequence
  };
  std::mt19937 generator(5);
  for (const Case& at : {Case{24, 2, false, 0, false},
                         {24, 2, true, 0, false},
                         {24, 3, true, 0, true},
                         {24, 3, true, 70, false, 1},
                         {80, 2, true, 70, true},
                         {136, 2, true, 0, false},
                         {24, 2, true, 40, false, 2100}}) {
    SCOPED_TRACE("D " + std::to_string(at.size) + " window " + std::to_string(at.window) + " parts " +
                 std::to_string(at.parts));
    const std::vector<std::int64_t> lengths{at.first, 0, 200};
    Problem problem({lengths.begin(), lengths.end()},
                    {2, 1, at.size, at.causal, 0, at.window, at.window > 0 ? 2.0 : 0.0});
    if (at.ends) problem.ends = testing::random_ends(generator, lengths);
    const Answer got = testing::answer_of_parts<Answer>(
        problem, problem.offsets, at.parts,
        [&](const Problem& hidden, const QueryPart& part) { return on_device(hidden, part); });
    expect_close(got, on_processor(problem));
  }
}

TEST_P(FlashAttention, ends_of_a_causal_mask_change_nothing) {
  const Problem problem({130, 5}, {4, 2, 32, true});
  Problem ended = problem;
  for (const std::int32_t length : {130, 5}) {
    for (std::int32_t row = 1; row <= length; ++row) ended.ends.push_back(row);
  }
  const Answer plain = on_device(problem);
  const Answer same = on_device(ended);
  const double tolerance = act() == DType::f32 ? 1e-6 : 5e-3;
  EXPECT_LT(worst_error(same.out, plain.out), tolerance);
  EXPECT_LT(worst_error(same.dqkv, plain.dqkv), tolerance);
}

TEST_P(FlashAttention, a_window_of_all_keys_changes_nothing) {
  const Answer plain = on_device(Problem({130, 5}, {4, 2, 32, true}));
  const Answer wide = on_device(Problem({130, 5}, {4, 2, 32, true, 0, 130}));
  const double tolerance = act() == DType::f32 ? 1e-6 : 5e-3;
  EXPECT_LT(worst_error(wide.out, plain.out), tolerance);
  EXPECT_LT(worst_error(wide.dqkv, plain.dqkv), tolerance);
}

TEST_P(FlashAttention, query_heads_use_the_key_head_of_their_group) {
  for (std::int64_t heads = 1; heads <= 8; ++heads) {
    for (std::int64_t kv_heads = 1; kv_heads <= heads; ++kv_heads) {
      if (heads % kv_heads != 0) continue;
      SCOPED_TRACE(std::to_string(heads) + " heads share " + std::to_string(kv_heads));
      compare(Problem({21, 70}, {heads, kv_heads, 16, true}));
    }
  }
}

TEST_P(FlashAttention, the_order_of_threads_does_not_matter_FA_2) {  // FA-2
  for (const std::int64_t size : {40, 72, 136}) {
    for (const std::int64_t window : {0, 9}) {
      Problem problem({70, 3}, {2, 1, size, true, 0, window, window > 0 ? 5.0 : 0.0});
      std::mt19937 generator(size);
      if (size == 72) problem.ends = testing::random_ends(generator, {70, 3});
      const OnDevice memory = put(problem);
      run([&] { compute(memory, problem.shape, size == 40 ? QueryPart{1, 2} : QueryPart{}); });
    }
  }
}

TEST_P(FlashAttention, two_runs_are_bitwise_equal_FA_2) {  // FA-2
  const Problem problem({130, 5}, {4, 2, 32, true});
  const Answer first = on_device(problem);
  const Answer second = on_device(problem);
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.lse, second.lse);
  EXPECT_EQ(first.dqkv, second.dqkv);
}

TEST_P(FlashAttention, a_sequence_does_not_feel_its_neighbours_FA_2) {  // FA-2
  for (const AttentionShape& shape : {AttentionShape{2, 1, 24, false}, AttentionShape{2, 1, 24, true, 0, 21, 4}}) {
    const Problem packed({40, 77, 9}, shape);
    Problem alone({77}, shape);
    const auto cut = [](const Values& from, std::int64_t columns) {
      return Values(from.begin() + 40 * columns, from.begin() + 117 * columns);
    };
    alone.qkv = cut(packed.qkv, shape.qkv_columns());
    alone.dout = cut(packed.dout, shape.out_columns());
    const Answer together = on_device(packed);
    const Answer single = on_device(alone);
    EXPECT_EQ(cut(together.out, shape.out_columns()), single.out);
    EXPECT_EQ(cut(together.dqkv, shape.qkv_columns()), single.dqkv);
  }
}

TEST_P(FlashAttention, large_scores_neither_overflow_nor_vanish) {
  Problem problem({90}, {1, 1, 32, true});
  const auto columns = static_cast<std::size_t>(problem.shape.qkv_columns());
  for (std::size_t i = 0; i < problem.qkv.size(); ++i) {
    if (i % columns < 64) problem.qkv[i] *= 64;  // q and k: scores in the tens of thousands
  }
  const Answer got = on_device(problem);
  const Answer wanted = on_processor(problem);
  EXPECT_LT(worst_error(got.out, wanted.out), act() == DType::f32 ? 5e-3 : 2e-2);  // f32 scores of 3e4 are good to 2e-3
  for (const double value : got.dqkv) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(FlashAttention, no_rows_and_empty_sequences_are_allowed) {
  EXPECT_TRUE(on_device(Problem({}, {2, 1, 16, true})).out.empty());
  compare(Problem({0, 3, 0}, {2, 1, 16, true}));
}

INSTANTIATE_TEST_SUITE_P(Types, FlashAttention, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(FlashRefusal, names_the_head_size_and_the_nearest_good_one) {
  EXPECT_EQ(flash_refusal({1, 1, 64, true}), "");
  EXPECT_EQ(flash_refusal({1, 1, 20, true}), "head size 20 is none of 16, 24, ..., 256; the nearest is 24");
  EXPECT_EQ(flash_refusal({1, 1, 7, true}), "head size 7 is none of 16, 24, ..., 256; the nearest is 16");
  EXPECT_EQ(flash_refusal({1, 1, 264, true}), "head size 264 is none of 16, 24, ..., 256; the nearest is 256");
}

TEST(FlashRefusal, names_a_window_without_a_causal_mask) {
  EXPECT_EQ(flash_refusal({1, 1, 64, false, 0, 5}), "a window of keys needs a causal mask");
}

TEST(FlashRefusal, is_an_error_of_a_call) {
  const Launch at{};
  const Tensor none(nullptr, DType::f32, Shape{0, 60});
  EXPECT_THROW(flash_attention(at, {none, {1, 1, 20, true}, {}, none, none}), DeviceError);
  alignas(16) float memory[64] = {};
  const Tensor odd(memory + 1, DType::f32, Shape{1, 48});
  EXPECT_THROW(flash_attention(at, {odd, {1, 1, 16, true}, {}, odd, odd}), DeviceError);
}

}  // namespace
}  // namespace maestro::cuda
