// SPDX-License-Identifier: Apache-2.0
// Norms of heads divided over tensor ranks against a single rank's. Only sums of squares are grouped in another way:
// 1e-5 relative to the largest value in f32; in bf16 a rounding of results and of the weights' gradients.
#include <gtest/gtest.h>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/parallel_functions.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro {
namespace {

using testing::copy_of;
using testing::exact_normals;
using testing::on_ranks;
using testing::OwnedTensor;
using testing::Values;
using testing::worst_error;

constexpr AttentionShape all_heads{.heads = 8, .kv_heads = 4, .head_size = 6};
constexpr std::int64_t rows = 7;

/// Returns columns [first, first + count) from each row.
Values columns_of(const Values& whole, RowRange range) {
  const auto width = static_cast<std::int64_t>(whole.size()) / rows;
  Values part;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto from = whole.begin() + row * width + range.first;
    part.insert(part.end(), from, from + range.count);
  }
  return part;
}

/// Returns a rank's heads as columns of [q | k | v].
Values heads_of(const Values& qkv, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t queries = all_heads.out_columns();
  const std::int64_t keys = all_heads.kv_heads * all_heads.head_size;
  Values rows_in_parts[3];
  std::int64_t first = 0;
  for (std::size_t part = 0; part < 3; ++part) {
    const std::int64_t columns = part == 0 ? queries : keys;
    rows_in_parts[part] = columns_of(qkv, {first + rank * columns / ranks, columns / ranks});
    first += columns;
  }
  Values cut;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const Values& part : rows_in_parts) {
      const auto width = static_cast<std::int64_t>(part.size()) / rows;
      cut.insert(cut.end(), part.begin() + row * width, part.begin() + (row + 1) * width);
    }
  }
  return cut;
}

struct Answer {
  Values y, dqkv, dquery, dkey;
};

class HeadNormOverRanks : public ::testing::TestWithParam<std::tuple<std::int64_t, bool, DType>> {
 protected:
  [[nodiscard]] std::int64_t ranks() const { return std::get<0>(GetParam()); }
  [[nodiscard]] bool whole() const { return std::get<1>(GetParam()); }
  [[nodiscard]] DType dtype() const { return std::get<2>(GetParam()); }
  [[nodiscard]] double tolerance() const { return dtype() == DType::f32 ? 1e-5 : 1e-2; }

  [[nodiscard]] Values weight_of(const Values& weight, std::int64_t count, std::int64_t rank) const {
    if (!whole()) return weight;
    const auto part = static_cast<std::int64_t>(weight.size()) / count;
    return {weight.begin() + rank * part, weight.begin() + (rank + 1) * part};
  }
  static Parameter& add(Parameters& to, const char* name, const Values& weight) {
    return to.add({name, Shape{static_cast<std::int64_t>(weight.size())}, true,
                   [weight](std::span<float> values) { std::copy(weight.begin(), weight.end(), values.begin()); }});
  }
  [[nodiscard]] Answer answer(Communicator* group) const {
    const std::int64_t count = group == nullptr ? 1 : group->size();
    const std::int64_t rank = group == nullptr ? 0 : group->rank();
    AttentionShape shape = all_heads;
    shape.heads /= count;
    shape.kv_heads /= count;
    Parameters parameters;
    Parameter& query = add(parameters, "query", weight_of(query_, count, rank));
    Parameter& key = add(parameters, "key", weight_of(key_, count, rank));
    parameters.allocate(true);
    Arena arena;
    Tape tape(ops_, arena, dtype(), true);
    const OwnedTensor qkv(dtype(), {rows, shape.qkv_columns()}, heads_of(qkv_, count, rank));
    const OwnedTensor seed(dtype(), {rows, shape.qkv_columns()}, heads_of(seed_, count, rank));
    const Var x = tape.input(qkv, true);
    const HeadNorms norms{.query = &query, .key = &key, .whole = whole(), .epsilon = 1e-5, .offset = 0.5};
    const Var y = head_norm(tape, x, norms, shape, group);
    Answer answer{copy_of(y.value()).values(), {}, {}, {}};
    tape.seed(y, seed);
    tape.backward();
    answer.dqkv = copy_of(x.gradient()).values();
    answer.dquery = copy_of(query.gradient()).values();
    answer.dkey = copy_of(key.gradient()).values();
    return answer;
  }

  std::mt19937 generator_{5};
  cpu::CpuOperatorTable ops_;
  Values qkv_ = exact_normals(generator_, rows* all_heads.qkv_columns());
  Values seed_ = exact_normals(generator_, rows* all_heads.qkv_columns());
  Values query_ = exact_normals(generator_, whole() ? all_heads.out_columns() : all_heads.head_size);
  Values key_ = exact_normals(generator_, (whole() ? all_heads.kv_heads : 1) * all_heads.head_size);
};

TEST_P(HeadNormOverRanks, gives_each_rank_its_heads_and_the_gradients_of_one_rank) {
  const Answer wanted = answer(nullptr);
  std::vector<Answer> found(static_cast<std::size_t>(ranks()));
  on_ranks(ranks(), [&](Communicator& group) {
    Answer& own = found[static_cast<std::size_t>(group.rank())] = answer(&group);
    EXPECT_LT(worst_error(own.y, heads_of(wanted.y, ranks(), group.rank())), tolerance());
    EXPECT_LT(worst_error(own.dqkv, heads_of(wanted.dqkv, ranks(), group.rank())), tolerance());
    if (whole()) {
      EXPECT_LT(worst_error(own.dquery, weight_of(wanted.dquery, ranks(), group.rank())), tolerance());
      EXPECT_LT(worst_error(own.dkey, weight_of(wanted.dkey, ranks(), group.rank())), tolerance());
    }
    const Answer again = answer(&group);  // PF-2
    EXPECT_EQ(again.y, own.y);
    EXPECT_EQ(again.dqkv, own.dqkv);
  });
  if (whole()) return;
  for (std::size_t rank = 1; rank < found.size(); ++rank) {  // for weights shared by all heads, the ranks' sum
    for (std::size_t i = 0; i < wanted.dquery.size(); ++i) found[0].dquery[i] += found[rank].dquery[i];
    for (std::size_t i = 0; i < wanted.dkey.size(); ++i) found[0].dkey[i] += found[rank].dkey[i];
  }
  EXPECT_LT(worst_error(found[0].dquery, wanted.dquery), tolerance());
  EXPECT_LT(worst_error(found[0].dkey, wanted.dkey), tolerance());
}

INSTANTIATE_TEST_SUITE_P(Ranks, HeadNormOverRanks,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool(),
                                            ::testing::Values(DType::f32, DType::bf16)));

TEST(HeadNormOfFrozenWeights, gives_the_gradient_of_its_input) {
  const cpu::CpuOperatorTable ops;
  std::mt19937 generator(6);
  const Values qkv = exact_normals(generator, rows * all_heads.qkv_columns());
  const OwnedTensor x(DType::f32, {rows, all_heads.qkv_columns()}, qkv);
  const auto gradient = [&](bool trained) {
    Parameters parameters;
    const auto ones = [](std::span<float> values) { std::fill(values.begin(), values.end(), 1.0F); };
    Parameter& query = parameters.add({"query", Shape{all_heads.head_size}, true, ones});
    Parameter& key = parameters.add({"key", Shape{all_heads.head_size}, true, ones});
    parameters.allocate(trained);
    Arena arena;
    Tape tape(ops, arena, DType::f32, true);
    const Var in = tape.input(x, true);
    tape.seed(head_norm(tape, in, {.query = &query, .key = &key, .epsilon = 1e-6}, all_heads, nullptr), x);
    tape.backward();
    return copy_of(in.gradient()).values();
  };
  EXPECT_EQ(gradient(false), gradient(true));
}

}  // namespace
}  // namespace maestro
