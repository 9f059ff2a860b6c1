// SPDX-License-Identifier: Apache-2.0
// Inputs are small multiples of 1/8 that bf16 holds, and so are their sums: every expected value is exact.
#include "runtime/ops/parallel_functions.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro {
namespace {

using testing::on_ranks;
using testing::OwnedTensor;
using testing::rows_of;
using testing::Values;

constexpr std::int64_t width = 5;
constexpr std::int64_t row_counts[] = {0, 1, 2, 5, 8};

/// Returns values that differ for every seed.
OwnedTensor eighths(DType dtype, Shape shape, std::int64_t seed) {
  std::mt19937 generator(static_cast<unsigned>(seed));
  std::uniform_int_distribution<int> step(-8, 8);
  Values values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = step(generator) / 8.0;
  return {dtype, shape, values};
}

Values sum_of(const std::vector<OwnedTensor>& tensors) {
  Values sum(static_cast<std::size_t>(tensors.front().tensor().elements()));
  for (const OwnedTensor& tensor : tensors) {
    const Values values = tensor.values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

Values values_of(const Tensor& tensor) {
  return testing::copy_of(tensor).values();
}

class ParallelFunctions : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {
 protected:
  [[nodiscard]] std::int64_t ranks() const { return std::get<0>(GetParam()); }
  [[nodiscard]] DType dtype() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::vector<OwnedTensor> one_each(Shape shape) const {
    std::vector<OwnedTensor> tensors;
    for (std::int64_t rank = 0; rank < ranks(); ++rank) tensors.push_back(eighths(dtype(), shape, 50 + rank));
    return tensors;
  }
  cpu::CpuOperatorTable ops_;
};

TEST_P(ParallelFunctions, gathered_rows_are_whole_on_every_rank_and_their_gradients_add_up) {
  for (const std::int64_t rows : row_counts) {
    const OwnedTensor whole = eighths(dtype(), {rows, width}, 1);
    const std::vector<OwnedTensor> seeds = one_each({rows, width});
    const OwnedTensor gradient(dtype(), {rows, width}, sum_of(seeds));
    on_ranks(ranks(), [&](Communicator& group) {
      Arena arena;
      Tape tape(ops_, arena, dtype(), true);
      const OwnedTensor part = rows_of(whole, group);
      const Var x = tape.input(part, true);
      const Var y = all_gather_rows(tape, x, &group, rows);
      EXPECT_EQ(y.value().shape(), (Shape{rows, width}));
      EXPECT_EQ(y.value().dtype(), dtype());
      EXPECT_EQ(values_of(y.value()), whole.values());
      tape.seed(y, seeds[static_cast<std::size_t>(group.rank())]);
      tape.backward();
      EXPECT_EQ(values_of(x.gradient()), rows_of(gradient, group).values());
    });
  }
}

TEST_P(ParallelFunctions, a_sum_lies_in_parts_over_the_ranks_and_its_gradient_is_gathered) {
  for (const std::int64_t rows : row_counts) {
    const std::vector<OwnedTensor> inputs = one_each({rows, width});
    const OwnedTensor sum(dtype(), {rows, width}, sum_of(inputs));
    const OwnedTensor seed = eighths(dtype(), {rows, width}, 2);
    on_ranks(ranks(), [&](Communicator& group) {
      Arena arena;
      Tape tape(ops_, arena, dtype(), true);
      const Var x = tape.input(inputs[static_cast<std::size_t>(group.rank())], true);
      const Var y = reduce_scatter_rows(tape, x, &group);
      EXPECT_EQ(y.value().dtype(), dtype());
      EXPECT_EQ(y.value().shape(), (Shape{row_part(rows, group.size(), group.rank()).count, width}));
      EXPECT_EQ(values_of(y.value()), rows_of(sum, group).values());
      const OwnedTensor part = rows_of(seed, group);
      tape.seed(y, part);
      tape.backward();
      EXPECT_EQ(values_of(x.gradient()), seed.values());
    });
  }
}

TEST_P(ParallelFunctions, an_input_shared_by_ranks_gets_the_sum_of_what_each_gives_back) {
  const OwnedTensor input = eighths(dtype(), {3, width}, 1);
  const std::vector<OwnedTensor> seeds = one_each({3, width});
  const OwnedTensor before = eighths(dtype(), {3, width}, 7);
  on_ranks(ranks(), [&](Communicator& group) {
    Arena arena;
    Tape tape(ops_, arena, dtype(), true);
    const Var x = tape.input(input, true);
    const DType other = dtype() == DType::f32 ? DType::bf16 : DType::f32;
    const Var own = converted(tape, x, other);  // recorded before the copy, so without the sum
    const Var y = converted(tape, copy_to_group(tape, x, &group), other);
    const OwnedTensor seed(other, {3, width}, seeds[static_cast<std::size_t>(group.rank())].values());
    const OwnedTensor own_seed(other, {3, width}, before.values());
    tape.seed(y, seed);
    tape.seed(own, own_seed);
    tape.backward();
    Values wanted = sum_of(seeds);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += before.values()[i];
    EXPECT_EQ(values_of(x.gradient()), wanted);
    for (const OwnedTensor* given : {&seed, &own_seed}) {  // TP-2: the seed is not written
      EXPECT_EQ(given->values(),
                given == &seed ? seeds[static_cast<std::size_t>(group.rank())].values() : before.values());
    }
  });
}

TEST_P(ParallelFunctions, forward_only_tapes_hold_nothing_of_them) {  // TP-1
  const OwnedTensor whole = eighths(dtype(), {8, width}, 1);
  on_ranks(ranks(), [&](Communicator& group) {
    Arena arena;
    Tape tape(ops_, arena, dtype(), false);
    const OwnedTensor part = rows_of(whole, group);
    {
      const Var y = reduce_scatter_rows(tape, all_gather_rows(tape, tape.input(part, true), &group, 8), &group);
      EXPECT_EQ(y.value().rows(), part.tensor().rows());
    }
    EXPECT_EQ(arena.used_bytes(), 0U);
  });
}

/// Tables of tokens and positions, or a range of their rows.
struct Tables {
  Tables(const OwnedTensor& tokens_from, RowRange range, const OwnedTensor& positions_from) {
    const auto of = [](const OwnedTensor& values) {
      return [values = values.values()](std::span<float> to) { std::copy(values.begin(), values.end(), to.begin()); };
    };
    const OwnedTensor own = rows_of(tokens_from, range);
    tokens = &parameters.add({"tokens", own.tensor().shape(), true, of(own)});
    positions = &parameters.add({"positions", positions_from.tensor().shape(), false, of(positions_from)});
    parameters.allocate(true);
  }
  Parameters parameters;
  Parameter* tokens;
  Parameter* positions;
};

class ParallelEmbedding : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static constexpr std::int64_t vocabulary = 11;
  static constexpr std::int64_t places = 4;
  cpu::CpuOperatorTable ops_;
  const OwnedTensor tokens_ = eighths(DType::f32, {vocabulary, width}, 3);
  const OwnedTensor positions_ = eighths(DType::f32, {places, width}, 4);
};

TEST_P(ParallelEmbedding, parts_of_a_table_add_up_to_the_embedding_and_get_its_gradient) {
  const std::vector<std::int32_t> at = {0, 1, 2, 0, 1, 2, 3};
  const auto rows = static_cast<std::int64_t>(at.size());
  const OwnedTensor ids(DType::i32, {rows}, {0, 10, 3, -1, 5, 7, 3});
  const OwnedTensor seed = eighths(DType::f32, {rows, width}, 9);
  Arena arena;
  Tape tape(ops_, arena, DType::f32, true);
  Tables whole(tokens_, {0, vocabulary}, positions_);
  const Var wanted = embedding(tape, *whole.tokens, ids, whole.positions, {.offsets = {}, .positions = at}, 2);
  const OwnedTensor values = testing::copy_of(wanted.value());
  tape.seed(wanted, seed);
  tape.backward();

  std::vector<Values> place_gradients(static_cast<std::size_t>(GetParam()));
  on_ranks(GetParam(), [&](Communicator& group) {
    Arena own_arena;
    Tape own_tape(ops_, own_arena, DType::f32, true);
    const RowRange range = row_part(vocabulary, group.size(), group.rank());
    Tables own(tokens_, range, positions_);
    const VocabularyPart part{&group, vocabulary, range.first};
    const Var y =
        reduce_scatter_rows(own_tape, embedding_part(own_tape, *own.tokens, ids, own.positions, at, part, 2), &group);
    EXPECT_EQ(values_of(y.value()), rows_of(values, group).values());
    const OwnedTensor own_seed = rows_of(seed, group);
    own_tape.seed(y, own_seed);
    own_tape.backward();
    EXPECT_EQ(values_of(own.tokens->gradient()), rows_of(whole.tokens->gradient(), range).values());
    place_gradients[static_cast<std::size_t>(group.rank())] = values_of(own.positions->gradient());
  });
  EXPECT_EQ(place_gradients.front(), values_of(whole.positions->gradient()));
  for (std::size_t rank = 1; rank < place_gradients.size(); ++rank) {
    EXPECT_EQ(place_gradients[rank], Values(static_cast<std::size_t>(places * width))) << "rank " << rank;
  }
}

TEST_P(ParallelEmbedding, no_rows_have_an_embedding_of_no_rows) {
  on_ranks(GetParam(), [&](Communicator& group) {
    Arena arena;
    Tape tape(ops_, arena, DType::f32, true);
    const RowRange range = row_part(vocabulary, group.size(), group.rank());
    Tables own(tokens_, range, positions_);
    const OwnedTensor ids(DType::i32, {0});
    const Var y = reduce_scatter_rows(
        tape, embedding_part(tape, *own.tokens, ids, own.positions, {}, {&group, vocabulary, range.first}), &group);
    EXPECT_EQ(y.value().shape(), (Shape{0, width}));
    const OwnedTensor seed(DType::f32, {0, width});
    tape.seed(y, seed);
    tape.backward();
    EXPECT_EQ(values_of(own.tokens->gradient()), Values(static_cast<std::size_t>(range.count * width)));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParallelFunctions,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(DType::f32, DType::bf16)));
INSTANTIATE_TEST_SUITE_P(Ranks, ParallelEmbedding, ::testing::Values(1, 2, 3));

TEST(WithoutAGroup, functions_over_ranks_return_what_they_are_given) {  // PF-1
  const cpu::CpuOperatorTable ops;
  Arena arena;
  Tape tape(ops, arena, DType::f32, true);
  const OwnedTensor input = eighths(DType::f32, {4, width}, 1);
  const Var x = tape.input(input, true);
  for (const Var& y :
       {all_gather_rows(tape, x, nullptr, 4), reduce_scatter_rows(tape, x, nullptr), copy_to_group(tape, x, nullptr)}) {
    EXPECT_EQ(y.value().raw(), input.tensor().raw());
  }
  EXPECT_EQ(arena.used_bytes(), 0U) << "nothing is recorded";
}

TEST(WithoutAGroup, an_embedding_is_that_of_one_rank) {  // PF-1
  const cpu::CpuOperatorTable ops;
  Arena arena;
  Tape tape(ops, arena, DType::f32, false);
  Tables tables(eighths(DType::f32, {6, width}, 1), {0, 6}, eighths(DType::f32, {2, width}, 2));
  const OwnedTensor ids(DType::i32, {3}, {5, -1, 0});
  const std::vector<std::int32_t> at = {0, 1, 0};
  const Var wanted = embedding(tape, *tables.tokens, ids, tables.positions, {.offsets = {}, .positions = at});
  const Var got = embedding_part(tape, *tables.tokens, ids, tables.positions, at, {});
  EXPECT_EQ(values_of(got.value()), values_of(wanted.value()));
}

TEST(RankPart, is_the_row_part_of_layouts) {
  for (std::int64_t rows = 0; rows < 20; ++rows) {
    for (std::int64_t ranks = 1; ranks < 6; ++ranks) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const RowRange wanted = row_part(rows, ranks, rank);
        EXPECT_EQ(rank_part(rows, ranks, rank), (RankPart{wanted.first, wanted.count}));
      }
    }
  }
}

}  // namespace
}  // namespace maestro
