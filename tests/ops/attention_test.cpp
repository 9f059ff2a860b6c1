// SPDX-License-Identifier: Apache-2.0
// Tolerances relative to the largest value: f32 sums of up to a few hundred terms, 2e-5; bf16 rounds each result once
// (2^-9), and the backward pass reads an `out` that is rounded once: 1e-2.
#include "runtime/ops/cpu/attention/attention.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/ops/operator_call.hpp"
#include "tests/ops/attention_arithmetic.hpp"
#include "tests/ops/query_parts.hpp"
#include "tests/ops/random_ends.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::cpu {
namespace {

using Arithmetic = testing::AttentionArithmetic;
using testing::exact_normals;
using testing::OwnedTensor;
using testing::Recorded;
using testing::Values;
using testing::worst_error;

struct Problem {
  std::vector<std::int64_t> lengths;
  AttentionShape shape;
  Values qkv;
  Values dout;
  std::vector<std::int32_t> ends = {};
  [[nodiscard]] std::int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }
  [[nodiscard]] std::vector<std::int32_t> offsets() const {
    std::vector<std::int32_t> offsets{0};
    for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
    return offsets;
  }
};

struct Answer {
  Values out;
  Values lse;
  Values dqkv;
};

Problem random_problem(std::vector<std::int64_t> lengths, const AttentionShape& shape, unsigned seed = 1) {
  Problem problem{std::move(lengths), shape, {}, {}};
  std::mt19937 generator(seed);
  problem.qkv = exact_normals(generator, problem.rows() * shape.qkv_columns());
  problem.dout = exact_normals(generator, problem.rows() * shape.out_columns());
  return problem;
}

Answer compute(const Problem& problem, const Arithmetic& with, const QueryPart& queries = {}) {
  const DType act = with.act;
  const std::int64_t rows = problem.rows();
  const AttentionShape& shape = problem.shape;
  const std::vector<std::int32_t> offsets = problem.offsets();
  const SequenceLayout layout{.offsets = offsets, .ends = problem.ends};
  const OwnedTensor qkv(act, Shape{rows, shape.qkv_columns()}, problem.qkv);
  const OwnedTensor dout(act, Shape{rows, shape.out_columns()}, problem.dout);
  const OwnedTensor out(act, Shape{rows, shape.out_columns()});
  const OwnedTensor lse(DType::f32, Shape{rows, shape.heads});
  const OwnedTensor dqkv(act, Shape{rows, shape.qkv_columns()});
  for (const OwnedTensor* written : {&out, &lse, &dqkv}) written->fill(testing::unwritten);
  ScratchPool scratch;
  const cpu::AttentionEngine attention(with.isa, with.bf16, scratch);
  attention.forward({qkv, out, lse}, shape, {layout, queries});
  attention.backward({qkv, out, lse}, {dout, dqkv}, shape, {layout, queries});
  return {out.values(), lse.values(), dqkv.values()};
}

/// Attention for a single head and sequence, computed from the formulas in double precision.
struct Reference {
  const Problem& problem;
  Answer answer;

  explicit Reference(const Problem& p) : problem(p) {
    const auto rows = static_cast<std::size_t>(p.rows());
    answer.out.resize(rows * static_cast<std::size_t>(p.shape.out_columns()));
    answer.lse.resize(rows * static_cast<std::size_t>(p.shape.heads));
    answer.dqkv.resize(rows * static_cast<std::size_t>(p.shape.qkv_columns()));
    std::int64_t first = 0;
    for (const std::int64_t length : p.lengths) {
      for (std::int64_t head = 0; head < p.shape.heads; ++head) run(first, length, head);
      first += length;
    }
  }

  [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t slot) const {
    return static_cast<std::size_t>(row * problem.shape.qkv_columns() + slot * problem.shape.head_size);
  }
  void run(std::int64_t first, std::int64_t length, std::int64_t head) {
    const AttentionShape& s = problem.shape;
    const std::int64_t group = head / (s.heads / s.kv_heads);
    const auto size = static_cast<std::size_t>(s.head_size);
    const double scale = s.scale > 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.head_size));
    const auto dot = [&](const double* a, const double* b) { return std::inner_product(a, a + size, b, 0.0); };
    for (std::int64_t i = first; i < first + length; ++i) {
      const std::int64_t own_end = problem.ends.empty() ? i + 1 : first + problem.ends[static_cast<std::size_t>(i)];
      const std::int64_t end = s.causal ? own_end : first + length;
      const std::int64_t begin = s.window > 0 ? std::max(first, i + 1 - s.window) : first;
      const std::size_t qi = at(i, head);
      const std::size_t oi = static_cast<std::size_t>(i * s.out_columns() + head * s.head_size);
      Values p;
      Values slopes;  // slopes of the cap
      for (std::int64_t j = begin; j < end; ++j) {
        const double score = scale * dot(&problem.qkv[qi], &problem.qkv[at(j, s.heads + group)]);
        const double bent = s.softcap > 0 ? std::tanh(score / s.softcap) : 0;
        p.push_back(s.softcap > 0 ? s.softcap * bent : score);
        slopes.push_back(1 - bent * bent);
      }
      const double top = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (const double score : p) sum += std::exp(score - top);
      const double lse = top + std::log(sum);
      answer.lse[static_cast<std::size_t>(i * s.heads + head)] = lse;
      for (std::size_t j = 0; j < p.size(); ++j) {
        p[j] = std::exp(p[j] - lse);
        const std::size_t vj = at(begin + static_cast<std::int64_t>(j), s.heads + s.kv_heads + group);
        for (std::size_t d = 0; d < size; ++d) answer.out[oi + d] += p[j] * problem.qkv[vj + d];
      }
      const double delta = dot(&problem.dout[oi], &answer.out[oi]);
      for (std::size_t j = 0; j < p.size(); ++j) {
        const std::size_t kj = at(begin + static_cast<std::int64_t>(j), s.heads + group);
        const std::size_t vj = at(begin + static_cast<std::int64_t>(j), s.heads + s.kv_heads + group);
        const double ds = p[j] * (dot(&problem.dout[oi], &problem.qkv[vj]) - delta) * scale * slopes[j];
        for (std::size_t d = 0; d < size; ++d) {
          answer.dqkv[vj + d] += p[j] * problem.dout[oi + d];
          answer.dqkv[kj + d] += ds * problem.qkv[qi + d];
          answer.dqkv[qi + d] += ds * problem.qkv[kj + d];
        }
      }
    }
  }
};

void expect_close(const Answer& got, const Answer& wanted, const Arithmetic& with) {
  const double tolerance = with.act == DType::f32 ? 2e-5 : 1e-2;
  EXPECT_LT(worst_error(got.out, wanted.out), tolerance);
  EXPECT_LT(worst_error(got.lse, wanted.lse), 2e-5);
  EXPECT_LT(worst_error(got.dqkv, wanted.dqkv), tolerance);
}

class AttentionOnIsa : public ::testing::TestWithParam<Arithmetic> {
 protected:
  [[nodiscard]] const Arithmetic& with() const { return GetParam(); }
};

TEST_P(AttentionOnIsa, agrees_with_pytorch) {
  const Recorded recorded = testing::read_recorded("attention.safetensors");
  for (const auto& note : recorded.cases) {
    SCOPED_TRACE(note.dump());
    const auto name = note["name"].get<std::string>();
    Problem problem;
    problem.lengths = note["lengths"].get<std::vector<std::int64_t>>();
    problem.shape = {note["heads"], note["kv_heads"], note["head_size"], note["causal"]};
    problem.qkv = recorded.at(name + ".qkv");
    problem.dout = recorded.at(name + ".dout");
    const Answer wanted{recorded.at(name + ".out"), recorded.at(name + ".lse"), recorded.at(name + ".dqkv")};
    expect_close(compute(problem, with()), wanted, with());
  }
}

TEST_P(AttentionOnIsa, agrees_with_double_precision_over_tile_edges_and_head_sizes) {
  const std::vector<std::vector<std::int64_t>> all_lengths = {{1}, {1, 2, 3}, {64}, {65, 63, 1}, {16, 17, 48}, {150}};
  for (const auto& lengths : all_lengths) {
    for (const std::int64_t size : {1, 7, 16, 40, 48, 64, 80, 128}) {
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(::testing::PrintToString(lengths) + " D " + std::to_string(size) + (causal ? " causal" : ""));
        const Problem problem = random_problem(lengths, {2, 1, size, causal}, static_cast<unsigned>(size));
        expect_close(compute(problem, with()), Reference(problem).answer, with());
      }
    }
  }
}

TEST_P(AttentionOnIsa, query_heads_use_the_key_head_of_their_group) {
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {3, 3}, {4, 2}, {6, 1}, {6, 3}}) {
    SCOPED_TRACE(std::to_string(heads) + " heads share " + std::to_string(kv_heads));
    const Problem problem = random_problem({21, 70}, {heads, kv_heads, 16, true});
    expect_close(compute(problem, with()), Reference(problem).answer, with());
  }
}

TEST_P(AttentionOnIsa, windows_soft_caps_and_scales_agree_with_double_precision) {
  std::mt19937 generator(3);
  const auto pick = [&](std::initializer_list<std::int64_t> of) { return of.begin()[generator() % of.size()]; };
  for (unsigned seed = 0; seed < 40; ++seed) {
    AttentionShape shape{.kv_heads = pick({1, 2, 3}), .head_size = pick({1, 8, 24, 64, 80}), .causal = true};
    shape.heads = shape.kv_heads * pick({1, 2, 3});
    shape.scale = pick({0, 1}) * 0.3;
    shape.window = pick({1, 2, 15, 16, 17, 63, 64, 65, 100, 130, 1000});
    shape.softcap = pick({0, 1}) * 2.5;
    const std::vector<std::int64_t> lengths{pick({1, 16, 64, 200}), pick({3, 65, 70, 129})};
    SCOPED_TRACE(::testing::PrintToString(lengths) + " D " + std::to_string(shape.head_size) + " window " +
                 std::to_string(shape.window) + " cap " + std::to_string(shape.softcap));
    const Problem problem = random_problem(lengths, shape, seed);
    expect_close(compute(problem, with()), Reference(problem).answer, with());
  }
}

TEST_P(AttentionOnIsa, rows_see_later_rows_up_to_their_ends_as_in_double_precision) {
  std::mt19937 generator(5);
  const auto pick = [&](std::initializer_list<std::int64_t> of) { return of.begin()[generator() % of.size()]; };
  for (unsigned seed = 0; seed < 60; ++seed) {
    AttentionShape shape{.kv_heads = pick({1, 2}), .head_size = pick({1, 8, 24, 64}), .causal = true};
    shape.heads = shape.kv_heads * pick({1, 2, 3});
    shape.window = pick({0, 0, 1, 2, 17, 64, 65, 100, 1000});
    shape.softcap = pick({0, 1}) * 2.5;
    const std::vector<std::int64_t> lengths{pick({1, 16, 64, 200}), pick({3, 65, 70, 129})};
    SCOPED_TRACE(::testing::PrintToString(lengths) + " D " + std::to_string(shape.head_size) + " window " +
                 std::to_string(shape.window) + " cap " + std::to_string(shape.softcap));
    Problem problem = random_problem(lengths, shape, seed);
    problem.ends = testing::random_ends(generator, lengths);
    expect_close(compute(problem, with()), Reference(problem).answer, with());
  }
}

TEST_P(AttentionOnIsa, ends_of_a_causal_mask_do_not_change_a_bit) {
  for (const std::int64_t window : {0, 21}) {
    Problem problem = random_problem({130, 5, 64}, {4, 2, 24, true, 0, window, 3});
    const Answer causal = compute(problem, with());
    for (const std::int64_t length : problem.lengths) {
      for (std::int32_t row = 1; row <= length; ++row) problem.ends.push_back(row);
    }
    const Answer ended = compute(problem, with());
    EXPECT_EQ(causal.out, ended.out);
    EXPECT_EQ(causal.lse, ended.lse);
    EXPECT_EQ(causal.dqkv, ended.dqkv);
  }
}

TEST_P(AttentionOnIsa, scales_and_soft_caps_without_a_causal_mask_agree_with_double_precision) {
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_size = 24, .causal = false, .scale = 0.4, .softcap = 2};
  const Problem problem = random_problem({130, 7}, shape);
  expect_close(compute(problem, with()), Reference(problem).answer, with());
}

TEST_P(AttentionOnIsa, a_window_as_long_as_the_sequence_is_none) {
  AttentionShape shape{.heads = 2, .kv_heads = 1, .head_size = 32, .causal = true};
  const Answer all = compute(random_problem({150}, shape), with());
  shape.window = 150;
  expect_close(compute(random_problem({150}, shape), with()), all, with());
}

TEST_P(AttentionOnIsa, tokens_before_the_window_are_not_read) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_size = 16, .causal = true, .window = 20};
  Problem problem = random_problem({200}, shape);
  const Answer before = compute(problem, with());
  std::fill_n(problem.qkv.begin(), 100 * shape.qkv_columns(), 1e4);
  const Answer after = compute(problem, with());
  const auto from = 119 * shape.out_columns();  // token 119 sees 100 to 119
  EXPECT_EQ(Values(before.out.begin() + from, before.out.end()), Values(after.out.begin() + from, after.out.end()));
}

/// Returns the answer of all parts together.
Answer compute_in_parts(const Problem& problem, const Arithmetic& with, std::int64_t parts) {
  return testing::answer_of_parts<Answer>(
      problem, problem.offsets(), parts,
      [&](const Problem& hidden, const QueryPart& part) { return compute(hidden, with, part); });
}

TEST_P(AttentionOnIsa, parts_of_the_queries_agree_with_double_precision) {
  std::mt19937 generator(7);
  const auto pick = [&](std::initializer_list<std::int64_t> of) { return of.begin()[generator() % of.size()]; };
  for (unsigned seed = 0; seed < 30; ++seed) {
    AttentionShape shape{.kv_heads = pick({1, 2, 3}), .head_size = pick({1, 8, 24, 64, 80})};
    shape.heads = shape.kv_heads * pick({1, 2, 3});
    shape.causal = pick({0, 1, 1}) == 1;
    shape.scale = pick({0, 1}) * 0.3;
    shape.window = shape.causal ? pick({0, 0, 1, 17, 64, 100}) : 0;
    shape.softcap = pick({0, 1}) * 2.5;
    const std::vector<std::int64_t> lengths{seed == 3 ? 2100 : pick({1, 64, 200, 300}), 0, pick({3, 65, 129, 192})};
    const std::int64_t parts = seed == 3 ? 2 : pick({2, 3, 7});  // with 2, the longest has larger tiles
    SCOPED_TRACE(::testing::PrintToString(lengths) + " D " + std::to_string(shape.head_size) + " window " +
                 std::to_string(shape.window) + " cap " + std::to_string(shape.softcap) + " parts " +
                 std::to_string(parts));
    Problem problem = random_problem(lengths, shape, seed);
    if (shape.causal && pick({0, 1}) == 1) problem.ends = testing::random_ends(generator, lengths);
    const Answer got = compute_in_parts(problem, with(), parts);
    expect_close(got, Reference(problem).answer, with());
    const Answer whole = compute(problem, with());
    EXPECT_EQ(got.out, whole.out);
    EXPECT_EQ(got.lse, whole.lse);
  }
}

TEST_P(AttentionOnIsa, two_runs_are_bitwise_equal) {
  const Problem problem = random_problem({130, 5}, {4, 2, 32, true});
  const Answer first = compute(problem, with());
  const Answer second = compute(problem, with());
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.dqkv, second.dqkv);
}

TEST_P(AttentionOnIsa, a_sequence_does_not_feel_its_neighbours) {
  const AttentionShape shape{2, 1, 24, false};
  const Problem packed = random_problem({40, 77, 9}, shape);
  Problem alone{{77}, shape, {}, {}};
  const auto cut = [](const Values& from, std::int64_t columns) {
    return Values(from.begin() + 40 * columns, from.begin() + 117 * columns);
  };
  alone.qkv = cut(packed.qkv, shape.qkv_columns());
  alone.dout = cut(packed.dout, shape.out_columns());
  const Answer together = compute(packed, with());
  const Answer single = compute(alone, with());
  EXPECT_EQ(cut(together.out, shape.out_columns()), single.out);
  EXPECT_EQ(cut(together.dqkv, shape.qkv_columns()), single.dqkv);
}

TEST_P(AttentionOnIsa, a_causal_query_does_not_feel_later_tokens) {
  const AttentionShape shape{2, 2, 16, true};
  Problem problem = random_problem({100}, shape);
  const Answer before = compute(problem, with());
  const auto changed = static_cast<std::size_t>(73 * shape.qkv_columns());
  for (std::size_t i = changed; i < problem.qkv.size(); ++i) problem.qkv[i] = 1000;
  const Answer after = compute(problem, with());
  const auto kept = 73 * shape.out_columns();
  EXPECT_EQ(Values(before.out.begin(), before.out.begin() + kept), Values(after.out.begin(), after.out.begin() + kept));
}

TEST_P(AttentionOnIsa, large_scores_neither_overflow_nor_vanish) {
  Problem problem = random_problem({90}, {1, 1, 32, true});
  const auto columns = static_cast<std::size_t>(problem.shape.qkv_columns());
  for (std::size_t i = 0; i < problem.qkv.size(); ++i) {
    if (i % columns < 64) problem.qkv[i] *= 64;  // q and k: scores in the tens of thousands
  }
  const Answer got = compute(problem, with());
  const Answer wanted = Reference(problem).answer;
  EXPECT_LT(worst_error(got.out, wanted.out),
            with().act == DType::f32 ? 5e-3 : 2e-2);  // f32 scores of 3e4 are good to 2e-3
  for (const double value : got.dqkv) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(AttentionOnIsa, no_rows_and_empty_sequences_are_allowed) {
  const Answer nothing = compute(random_problem({}, {2, 1, 16, true}), with());
  EXPECT_TRUE(nothing.out.empty());
  const Problem problem = random_problem({0, 3, 0}, {2, 1, 16, true});
  expect_close(compute(problem, with()), Reference(problem).answer, with());
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionOnIsa, ::testing::ValuesIn(testing::attention_arithmetics()),
                         [](const auto& test) { return test.param.name(); });

TEST(Attention, gradients_agree_with_central_differences) {
  Problem problem = random_problem({9, 4}, {2, 1, 8, true});
  const Answer analytic = compute(problem, {.isa = best_isa()});
  const auto loss = [&problem] {
    const Answer answer = compute(problem, {.isa = best_isa()});
    return std::inner_product(answer.out.begin(), answer.out.end(), problem.dout.begin(), 0.0);
  };
  Values numeric(problem.qkv.size());
  // Step 2^-6: truncation about h^2 = 2e-4 times third derivatives below 1, rounding 1e-6 / h = 1e-4.
  for (std::size_t i = 0; i < problem.qkv.size(); ++i) {
    const double kept = problem.qkv[i];
    problem.qkv[i] = kept + 0x1p-6;
    const double above = loss();
    problem.qkv[i] = kept - 0x1p-6;
    numeric[i] = (above - loss()) / 0x1p-5;
    problem.qkv[i] = kept;
  }
  EXPECT_LT(worst_error(analytic.dqkv, numeric), 1e-3);
}

double flops_of(const std::vector<std::int32_t>& offsets, const AttentionShape& shape, const QueryPart& part) {
  const Attention call{.qkv = Tensor(nullptr, DType::f32, Shape{offsets.back(), shape.qkv_columns()}),
                       .shape = shape,
                       .layout = {.offsets = offsets},
                       .queries = part};
  return call_of(call, false).flops;
}

TEST(AttentionCall, parts_of_the_queries_have_the_work_of_all_together) {
  const std::vector<std::int32_t> offsets{0, 70, 70, 400, 401};
  for (const AttentionShape& shape :
       {AttentionShape{4, 2, 16, true}, AttentionShape{4, 2, 16, false}, AttentionShape{4, 2, 16, true, 0, 100}}) {
    const auto flops = [&](const QueryPart& part) { return flops_of(offsets, shape, part); };
    EXPECT_EQ(flops({0, 3}) + flops({1, 3}) + flops({2, 3}), flops({}));
    EXPECT_GT(flops({1, 3}), 0);
  }
}

TEST(AttentionCall, parts_of_causal_queries_have_equal_work) {
  for (const std::int32_t length : {2048, 3000, 4096, 100000}) {
    for (const std::int64_t parts : {2, 3, 8}) {
      const double equal = flops_of({0, length}, {1, 1, 16, true}, {}) / static_cast<double>(parts);
      for (std::int64_t part = 0; part < parts; ++part) {
        EXPECT_LT(flops_of({0, length}, {1, 1, 16, true}, {part, parts}), 1.07 * equal) << length << " " << parts;
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cpu
