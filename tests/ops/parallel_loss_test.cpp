// SPDX-License-Identifier: Apache-2.0
// Losses over a divided vocabulary against the same losses on a single rank.
//
// Tolerances, relative to the largest value: only the grouping of f32 partial sums differs, 1e-5 for sums and
// gradients; bf16 rounds dlogits and each rank's dhidden (2^-9 each), 1.5e-2.
#include "tests/ops/parallel_loss.hpp"

namespace maestro::testing {
namespace {

const Sizes sizes[] = {
    {"parts_that_line_up", 9, 37, 37, 37, 4},
    {"parts_that_do_not_line_up", 9, 37, 33, 31, 4},
    {"a_larger_teacher", 9, 33, 50, 33, 4},
    {"ranks_without_shared_tokens", 9, 37, 31, 11, 3},
    {"fewer_tokens_than_ranks", 3, 2, 2, 2, 1},
    {"one_token", 2, 1, 5, 1, 1},
    {"a_teacher_of_fewer_tokens_than_ranks", 5, 7, 2, 2, 2},
    {"panels_within_parts", 12, 16400, 16400, 16390, 40},
};

Tolerances tolerances_of(DType act) {
  return act == DType::f32 ? Tolerances() : Tolerances{.gradients = 1.5e-2};
}

class LossOverRanks : public ::testing::TestWithParam<std::tuple<std::int64_t, Sizes>> {
 protected:
  [[nodiscard]] std::int64_t ranks() const { return std::get<0>(GetParam()); }
  [[nodiscard]] LossProblem problem() const { return problem_of(std::get<1>(GetParam())); }
};

TEST_P(LossOverRanks, of_every_divergence_and_boundary_is_that_of_one_rank) {  // DL-5
  std::vector<Terms> terms(std::begin(every_terms), std::end(every_terms));
  terms.insert(terms.end(), std::begin(processor_terms), std::end(processor_terms));
  for (const Terms& each : terms) {
    LossProblem p = with_terms(problem(), each);
    for (const double temperature : {1.0, 2.5}) {
      SCOPED_TRACE("boundary " + std::to_string(static_cast<int>(p.boundary)) + " divergence " +
                   std::to_string(static_cast<int>(p.divergence)) + " T " + std::to_string(temperature));
      p.temperature = temperature;
      p.alpha = 0.7;
      p.beta = 0.3;
      const ParallelLoss loss(p, {});
      const Answer whole = loss.whole();
      ASSERT_TRUE(p.shared == 1 || whole.sums.total != 0);
      const std::vector<Answer> parts = loss.over(ranks());
      expect_agreement(parts, whole, {});
      const std::vector<Answer> again = loss.over(ranks());  // PF-2
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        expect_same_bits(again[rank].sums, parts[rank].sums);
        EXPECT_EQ(again[rank].dhidden, parts[rank].dhidden);
        EXPECT_EQ(again[rank].dhead, parts[rank].dhead);
      }
    }
  }
}

TEST_P(LossOverRanks, with_soft_caps_is_that_of_one_rank) {
  LossProblem p = problem();
  p.softcap = 2;
  p.teacher_softcap = 3;
  for (const Terms& terms : every_terms) {
    p = with_terms(p, terms);
    const ParallelLoss loss(p, {});
    expect_agreement(loss.over(ranks()), loss.whole(), {});
  }
}

TEST_P(LossOverRanks, of_cross_entropy_is_that_of_one_rank) {
  LossProblem p = problem();
  p.with_teacher = false;
  for (const DType act : {DType::f32, DType::bf16}) {
    const ParallelLoss loss(p, {.act = act});
    expect_agreement(loss.over(ranks()), loss.whole(), tolerances_of(act));
  }
}

TEST_P(LossOverRanks, in_bf16_is_that_of_one_rank) {
  LossProblem p = problem();
  p.logits_dtype = DType::bf16;
  for (const Terms& terms : every_terms) {
    p = with_terms(p, terms);
    const ParallelLoss loss(p, {.act = DType::bf16});
    expect_agreement(loss.over(ranks()), loss.whole(), tolerances_of(DType::bf16));
  }
}

TEST_P(LossOverRanks, without_a_tape_or_with_a_frozen_head_has_the_same_sums) {
  for (const bool with_teacher : {false, true}) {
    LossProblem p = problem();
    p.with_teacher = with_teacher;
    p.divergence = Divergence::js;
    const std::vector<Answer> recorded = ParallelLoss(p, {}).over(ranks());
    const std::vector<Answer> forward = ParallelLoss(p, {.record = false}).over(ranks());
    const std::vector<Answer> frozen = ParallelLoss(p, {.head_trained = false}).over(ranks());
    expect_same_losses(recorded, forward, frozen);
  }
}

TEST_P(LossOverRanks, of_rows_without_targets_is_nothing) {
  for (const Terms& terms : every_terms) {
    LossProblem p = with_terms(problem(), terms);
    for (double& target : p.targets) target = -1;
    for (const Answer& answer : ParallelLoss(p, {}).over(ranks())) {
      expect_same_bits(answer.sums, LossSums{});
      EXPECT_EQ(answer.dhidden, Values(p.hidden.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, LossOverRanks,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::ValuesIn(sizes)),
                         [](const auto& at) {
                           return std::string(std::get<1>(at.param).name) + "_over_" +
                                  std::to_string(std::get<0>(at.param));
                         });

TEST(LossOfNoRows, is_nothing) {
  for (const Terms& terms : every_terms) {
    LossProblem p = with_terms(problem_of({"", 0, 37, 33, 31, 4}), terms);
    for (const Answer& answer : ParallelLoss(p, {}).over(2)) {
      expect_same_bits(answer.sums, LossSums{});
      EXPECT_TRUE(answer.dhidden.empty());
    }
  }
}

TEST(LossOverManyBlocks, is_that_of_one_rank) {  // DL-5
  LossProblem p = problem_of({"", 300, 33000, 33100, 32990, 1}, 4);
  std::fill_n(p.targets.begin(), 130, -1.0);  // includes a complete block of the moved logits
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits}) {
    p.boundary = boundary;
    p.divergence = Divergence::js;
    const ParallelLoss loss(p, {});
    expect_agreement(loss.over(2), loss.whole(), tolerances_of(DType::f32));
  }
}

/// A part's logits for a dozen rows exceed the limit on kept logits: every pass computes them again.
TEST(LossOverAHugeVocabulary, is_that_of_one_rank) {
  for (const bool line_up : {true, false}) {
    LossProblem p = problem_of({"", 13, 360001, line_up ? 360001 : 360200, 360000, 1}, 4);
    p.divergence = Divergence::js;
    const ParallelLoss loss(p, {});
    expect_agreement(loss.over(2), loss.whole(), tolerances_of(DType::f32));
  }
}

TEST(LossOverRanksOfRows, gives_every_rank_the_gradient_of_its_rows) {
  LossProblem p = problem_of({"", 10, 23, 23, 23, 1});
  p.with_teacher = false;
  const Answer whole = ParallelLoss(p, {}).whole();
  const OwnedTensor wanted(DType::f32, {p.rows, p.width}, whole.dhidden);
  const cpu::CpuOperatorTable ops;
  const OwnedTensor hidden(DType::f32, {p.rows, p.width}, p.hidden);
  const OwnedTensor values(DType::f32, {p.vocabulary, p.width}, p.head);
  const OwnedTensor targets(DType::i32, {p.rows}, p.targets);
  on_ranks(3, [&](Communicator& group) {
    const RowRange range = row_part(p.vocabulary, group.size(), group.rank());
    const TablePart head(ops, values, range, true);
    const OwnedTensor own = rows_of(hidden, group);
    Arena arena;
    Tape tape(ops, arena, DType::f32, true);
    const Var x = tape.input(own, true);
    const Var all = all_gather_rows(tape, x, &group, p.rows);
    cross_entropy_loss(tape, all, *head.parameter, {&targets.tensor(), p.scale}, {&group, p.vocabulary, range.first});
    tape.backward();
    EXPECT_LE(worst_error(copy_of(x.gradient()).values(), rows_of(wanted, group).values()), 1e-5);
  });
}

class TopKOverRanks : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static void expect_as_on_one_rank(std::int64_t ranks, const OwnedTensor& logits, std::int64_t k,
                                    std::int64_t tokens = 0) {
    const cpu::CpuOperatorTable ops;
    const Shape best{logits.tensor().rows(), k};
    const OwnedTensor values(DType::f32, best);
    const OwnedTensor indices(DType::i32, best);
    ops.run(TopK{.logits = logits, .values = values, .indices = indices, .columns = tokens});
    on_ranks(ranks, [&](Communicator& group) {
      const std::int64_t vocabulary = logits.tensor().columns();
      const RowRange range = row_part(vocabulary, group.size(), group.rank());
      const OwnedTensor own_values(DType::f32, best);
      const OwnedTensor own_indices(DType::i32, best);
      Arena arena;
      Tape tape(ops, arena, DType::f32, false);
      top_k(tape, columns_of(logits, range), own_values, own_indices, {&group, vocabulary, range.first}, tokens);
      EXPECT_EQ(own_indices.values(), indices.values());
      for (std::int64_t i = 0; i < best.elements(); ++i) {
        const bool both_nan = std::isnan(own_values.get(i)) && std::isnan(values.get(i));
        EXPECT_TRUE(both_nan || own_values.get(i) == values.get(i)) << i;
      }
    });
  }
};

TEST_P(TopKOverRanks, are_those_of_one_rank_also_among_equals) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<int> few(0, 3);  // many equal values within and between parts
  Values drawn(7 * 19);
  for (double& value : drawn) value = few(generator);
  const OwnedTensor logits(DType::f32, {7, 19}, drawn);
  for (const std::int64_t k : {1, 2, 6, 10, 19}) expect_as_on_one_rank(GetParam(), logits, k);
  for (const std::int64_t tokens : {3, 7, 12}) expect_as_on_one_rank(GetParam(), logits, 3, tokens);
}

TEST_P(TopKOverRanks, of_infinities_and_nan_are_those_of_one_rank) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const OwnedTensor logits(DType::f32, {2, 6}, {-inf, -inf, -inf, -inf, -inf, 1, 2, nan, inf, 0, nan, -inf});
  for (const std::int64_t k : {1, 3, 6}) expect_as_on_one_rank(GetParam(), logits, k);
}

TEST_P(TopKOverRanks, of_tiny_vocabularies_and_no_rows_exist) {
  expect_as_on_one_rank(GetParam(), {DType::f32, {2, 2}, {1, 5, 5, 1}}, 2);
  expect_as_on_one_rank(GetParam(), {DType::f32, {3, 1}, {4, 5, 6}}, 1);
  expect_as_on_one_rank(GetParam(), {DType::f32, {0, 9}}, 3);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TopKOverRanks, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace maestro::testing
