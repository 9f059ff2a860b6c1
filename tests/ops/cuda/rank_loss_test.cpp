// SPDX-License-Identifier: Apache-2.0
// Losses, embeddings and top k over a vocabulary divided over devices, against the same on CPUs. Every rank is a thread
// with a separate stream, memory and table with the fake CUDA.
//
// Tolerances, relative to the largest value. f32: sums are grouped in another way and exponentials are other functions,
// 2e-5 as for single kernels; gradients of js from a top-k teacher lose digits if the student's mass outside the k
// tokens is 1 less a sum, 5e-5. bf16: devices keep logits in bf16 (2^-9 of a logit of size up to 8 is 1.6e-2), CPUs in
// f32, and devices round dlogits and dhidden. The gradient for a single token is zero, and rounding errors remain of
// it.
#include <gtest/gtest.h>

#include "tests/ops/cuda/fake_rank.hpp"

namespace maestro::cuda {
namespace {

using namespace maestro::testing;

constexpr std::size_t all_rows = std::size_t{1} << 30;
// f32 logits: 128 rows with up to 128 tokens, or 256 with up to 64.
constexpr std::size_t some_rows = std::size_t{128} * 128 * sizeof(float);
constexpr double least_gradient = 1e-3;

const Sizes sizes[] = {
    {"parts_that_line_up", 9, 37, 37, 37, 4},
    {"parts_that_do_not_line_up", 9, 37, 33, 31, 4},
    {"a_larger_teacher", 9, 33, 50, 33, 4},
    {"ranks_without_shared_tokens", 9, 37, 31, 11, 3},
    {"fewer_tokens_than_ranks", 3, 2, 2, 2, 1},
    {"one_token", 2, 1, 5, 1, 1},
    {"a_teacher_of_fewer_tokens_than_ranks", 5, 7, 2, 2, 2},
    {"more_blocks_of_rows_than_a_rank_alone_would_need", 150, 129, 129, 127, 4},  // GT-4
};

class LossOverDevices : public ::testing::TestWithParam<std::tuple<std::int64_t, Sizes>> {
 protected:
  [[nodiscard]] std::int64_t ranks() const { return std::get<0>(GetParam()); }
  [[nodiscard]] LossProblem problem() const {
    LossProblem p = problem_of(std::get<1>(GetParam()));
    p.alpha = 0.7;
    p.beta = 0.3;
    p.temperature = 2.5;
    return p;
  }
  [[nodiscard]] std::vector<Answer> answers_of_devices(const ParallelLoss& loss) const {
    std::vector<Answer> all(static_cast<std::size_t>(ranks()));
    on_ranks(ranks(), [&](Communicator& group) {
      FakeRank rank(group, some_rows);
      all[static_cast<std::size_t>(group.rank())] = loss.answer(rank.place());
    });
    return all;
  }
  void expect_as_on_processors(const LossProblem& p, DType act) const {
    SCOPED_TRACE("boundary " + std::to_string(static_cast<int>(p.boundary)) + " divergence " +
                 std::to_string(static_cast<int>(p.divergence)));
    const ParallelLoss loss(p, {.act = act});
    const Tolerances within =
        act == DType::f32 ? Tolerances{2e-5, 5e-5, least_gradient} : Tolerances{1e-2, 3e-2, least_gradient};
    expect_agreement(answers_of_devices(loss), loss.whole(), within);
  }
};

TEST_P(LossOverDevices, of_every_divergence_and_boundary_is_that_of_a_processor) {
  LossProblem p = problem();
  for (const Terms& terms : every_terms) {
    p = with_terms(p, terms);
    expect_as_on_processors(p, DType::f32);
  }
}

TEST_P(LossOverDevices, in_bf16_is_that_of_a_processor) {
  LossProblem p = problem();
  p.logits_dtype = DType::bf16;
  for (const Terms& terms : every_terms) {
    p = with_terms(p, terms);
    expect_as_on_processors(p, DType::bf16);
  }
}

TEST_P(LossOverDevices, of_cross_entropy_is_that_of_a_processor) {
  LossProblem p = problem();
  p.with_teacher = false;
  for (const DType act : {DType::f32, DType::bf16}) expect_as_on_processors(p, act);
}

TEST_P(LossOverDevices, of_soft_capped_logits_is_that_of_a_processor) {
  LossProblem p = problem();
  p.softcap = 6;
  p.teacher_softcap = 5;
  for (const Terms& terms : every_terms) {
    p = with_terms(p, terms);
    expect_as_on_processors(p, DType::f32);
  }
  p.with_teacher = false;
  for (const DType act : {DType::f32, DType::bf16}) expect_as_on_processors(p, act);
}

TEST_P(LossOverDevices, without_a_tape_or_with_a_frozen_head_has_the_same_sums) {
  LossProblem p = problem();
  p.divergence = Divergence::js;
  const std::vector<Answer> recorded = answers_of_devices(ParallelLoss(p, {}));
  const std::vector<Answer> forward = answers_of_devices(ParallelLoss(p, {.record = false}));
  const std::vector<Answer> frozen = answers_of_devices(ParallelLoss(p, {.head_trained = false}));
  expect_same_losses(recorded, forward, frozen);
}

TEST_P(LossOverDevices, of_rows_without_targets_is_nothing) {
  LossProblem p = problem();
  for (double& target : p.targets) target = -1;
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
    p.boundary = boundary;
    for (const Answer& answer : answers_of_devices(ParallelLoss(p, {}))) {
      expect_same_bits(answer.sums, LossSums{});
      EXPECT_EQ(answer.dhidden, Values(p.hidden.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, LossOverDevices,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::ValuesIn(sizes)), [](const auto& at) {
                           return std::string(std::get<1>(at.param).name) + "_over_" +
                                  std::to_string(std::get<0>(at.param));
                         });

class TokensOverDevices : public ::testing::TestWithParam<std::int64_t> {
 protected:
  [[nodiscard]] std::int64_t ranks() const { return GetParam(); }
  cpu::CpuOperatorTable processor_;
};

TEST_P(TokensOverDevices, have_the_top_k_of_a_processor_also_among_equals) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<int> few(0, 3);  // many equal values within and between parts
  for (const std::int64_t vocabulary : {1, 2, 19}) {
    Values drawn(static_cast<std::size_t>(7 * vocabulary));
    for (double& value : drawn) value = few(generator);
    const OwnedTensor logits(DType::f32, {7, vocabulary}, drawn);
    for (const std::int64_t k : {1, 2, 6, 19}) {
      if (k > vocabulary) continue;
      const OwnedTensor values(DType::f32, {7, k}), indices(DType::i32, {7, k});
      processor_.run(TopK{.logits = logits, .values = values, .indices = indices});
      on_ranks(ranks(), [&](Communicator& group) {
        FakeRank rank(group, all_rows);
        const RowRange range = row_part(vocabulary, group.size(), group.rank());
        const OwnedTensor own_logits = columns_of(logits, range);
        Arena arena(arena_bytes, rank.ops().memory());
        Tape tape(rank.ops(), arena, DType::f32, false);
        const Block on_device = given(tape, own_logits);
        const Block own_values = tape.scratch({7, k}, DType::f32), own_indices = tape.scratch({7, k}, DType::i32);
        top_k(tape, on_device.tensor(), own_values.tensor(), own_indices.tensor(),
              {&rank.group(), vocabulary, range.first});
        EXPECT_EQ(fetched(rank.place(), own_values.tensor()), values.values());
        EXPECT_EQ(fetched(rank.place(), own_indices.tensor()), indices.values());
      });
    }
  }
}

struct Embedded {
  Values y, dtable, dpositions;
};
Embedded embedded(const RankPlace& at, const OwnedTensor& table, const OwnedTensor& places, const OwnedTensor& ids,
                  const OwnedTensor& dy) {
  const std::int64_t tokens = table.tensor().rows(), rows = ids.tensor().elements();
  const RowRange range = row_part(tokens, at.group->size(), at.group->rank());
  const TablePart part(at.ops, table, range, true);
  const TablePart learned(at.ops, places, {0, places.tensor().rows()}, true);
  Arena arena(arena_bytes, at.ops.memory());
  Tape tape(at.ops, arena, DType::f32, true);
  std::vector<std::int32_t> counted(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < counted.size(); ++row) counted[row] = static_cast<std::int32_t>(row % 5);
  const Block positions = tape.indices(counted), own_ids = given(tape, ids), seed = given(tape, dy);
  const Var y = embedding_part(tape, *part.parameter, own_ids.tensor(), learned.parameter,
                               positions.tensor().span<std::int32_t>(), {at.group, tokens, range.first});
  Embedded result;
  result.y = fetched(at, y.value());
  tape.seed(y, seed.tensor());
  tape.backward();
  result.dtable = fetched(at, part.parameter->gradient());
  result.dpositions = fetched(at, learned.parameter->gradient());
  return result;
}

TEST_P(TokensOverDevices, are_embedded_as_by_processors) {
  constexpr std::int64_t width = 6, rows = 33;
  for (const std::int64_t tokens : {1, 2, 23}) {
    std::mt19937 generator(5);
    std::uniform_int_distribution<std::int64_t> token(-1, tokens - 1);
    const OwnedTensor table(DType::f32, {tokens, width}, exact_normals(generator, tokens * width));
    const OwnedTensor places(DType::f32, {5, width}, exact_normals(generator, 5 * width));
    const OwnedTensor dy(DType::f32, {rows, width}, exact_normals(generator, rows * width));
    const OwnedTensor ids(DType::i32, Shape{rows});
    for (std::int64_t row = 0; row < rows; ++row) ids.set(row, static_cast<double>(token(generator)));
    on_ranks(ranks(), [&](Communicator& group) {
      const Embedded wanted = embedded({processor_, &group}, table, places, ids, dy);
      FakeRank rank(group, all_rows);
      const Embedded got = embedded(rank.place(), table, places, ids, dy);
      EXPECT_EQ(got.y, wanted.y);
      EXPECT_LE(worst_error(got.dtable, wanted.dtable), 1e-5);
      EXPECT_LE(worst_error(got.dpositions, wanted.dpositions), 1e-5);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TokensOverDevices, ::testing::Values(2, 3));

}  // namespace
}  // namespace maestro::cuda
