// SPDX-License-Identifier: Apache-2.0
// Heads and queries are independent of each other, so attention over context parts has the same bits as on a single
// rank. Only sums over ranks have another order: gradients of sinks, and of key heads that ranks share.
#include <gtest/gtest.h>

#include <optional>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/head_exchange.hpp"
#include "runtime/ops/parallel_functions.hpp"
#include "tests/ops/parallel_ranks.hpp"
#include "tests/ops/rotary_frequencies.hpp"

namespace maestro {
namespace {

using testing::copy_of;
using testing::on_ranks;
using testing::OwnedTensor;
using testing::rows_of;
using testing::Values;

struct AttentionCase {
  const char* name;
  std::int64_t kv_heads;
  bool causal;
  double theta;
  DType dtype;
  std::vector<std::int32_t> offsets;
  std::int64_t window = 0;
  double softcap = 0;
  std::vector<std::int32_t> ends = {};
  bool sinks = false;
  std::int64_t heads = 8;
  std::int64_t axes = 1;
};
void PrintTo(const AttentionCase& at, std::ostream* out) {
  *out << at.name;
}

class ContextAttention : public ::testing::TestWithParam<std::tuple<std::int64_t, AttentionCase>> {
 protected:
  struct Answer {
    OwnedTensor out;
    OwnedTensor dqkv;
    OwnedTensor dsinks;
  };
  ContextAttention() {
    for (std::size_t i = 0; i + 1 < at().offsets.size(); ++i) {
      for (std::int32_t place = 0; place < at().offsets[i + 1] - at().offsets[i]; ++place) {
        for (std::int32_t axis = 0; axis < at().axes; ++axis) positions_.push_back(place / (1 + axis));
      }
    }
    options_.shape = {.heads = at().heads,
                      .kv_heads = at().kv_heads,
                      .head_size = 6,
                      .causal = at().causal,
                      .window = at().window,
                      .softcap = at().softcap};
    if (at().theta > 0) {
      RotaryFrequencies frequencies = testing::frequencies(at().theta, 6);
      if (at().axes > 1) frequencies.axis = {0, 1, 2};
      options_.rotary = std::make_shared<const RotaryFrequencies>(frequencies);
    }
    std::mt19937 generator(11);
    const Shape in{rows(), options_.shape.qkv_columns()};
    const Shape out{rows(), options_.shape.out_columns()};
    qkv_.emplace(at().dtype, in, testing::exact_normals(generator, in.elements()));
    dout_.emplace(at().dtype, out, testing::exact_normals(generator, out.elements()));
  }
  [[nodiscard]] const AttentionCase& at() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::int64_t context() const { return std::get<0>(GetParam()); }
  [[nodiscard]] std::int64_t rows() const { return at().offsets.back(); }

  /// Returns the layout of all rows, which ranks share.
  [[nodiscard]] SequenceLayout layout() const {
    return {.offsets = at().offsets, .positions = positions_, .ends = at().ends, .axes = at().axes};
  }

  [[nodiscard]] Parameter& sinks_of(Parameters& parameters) const {
    Parameter& sinks = parameters.add({"sinks", Shape{at().heads}, false, {}});
    parameters.allocate(true);
    float value = 0;
    for (float& sink : sinks.value().span<float>()) sink = std::exchange(value, value + 0.5F);
    return sinks;
  }
  [[nodiscard]] AttentionOptions options(Parameter& sinks) const {
    AttentionOptions options = options_;
    if (at().sinks) options.sinks = &sinks;
    return options;
  }

  /// Returns the answer for a rank's rows; without a group, for all rows.
  [[nodiscard]] Answer answer(Communicator* group) const {
    Parameters parameters;
    Parameter& sinks = sinks_of(parameters);
    Arena arena;
    Tape tape(ops_, arena, at().dtype, true);
    // Copies, since rotation writes to them.
    const OwnedTensor own = group == nullptr ? copy_of(*qkv_) : rows_of(*qkv_, *group);
    const OwnedTensor seed = group == nullptr ? copy_of(*dout_) : rows_of(*dout_, *group);
    const Var x = tape.input(own, true);
    const Var y = context_attention(tape, x, options(sinks), layout(), group);
    OwnedTensor out = copy_of(y.value());
    tape.seed(y, seed);
    tape.backward();
    return {std::move(out), copy_of(x.gradient()), copy_of(sinks.gradient())};
  }

  cpu::CpuOperatorTable ops_;
  std::vector<std::int32_t> positions_;
  AttentionOptions options_;
  std::optional<OwnedTensor> qkv_, dout_;
};

TEST_P(ContextAttention, gives_each_rank_its_rows_of_the_whole_result_and_gradient) {
  const Answer whole = answer(nullptr);
  on_ranks(context(), [&](Communicator& group) {
    const Answer own = answer(&group);
    EXPECT_EQ(own.out.tensor().shape(), rows_of(whole.out, group).tensor().shape());
    EXPECT_EQ(own.out.values(), rows_of(whole.out, group).values());
    group.all_reduce_sum(own.dsinks.tensor().span<float>());  // as at the end of a step
    const bool own_keys = at().kv_heads % context() == 0;
    const bool own_heads = at().heads % context() == 0 && (own_keys || context() % at().kv_heads == 0);
    const double tolerance = own_keys ? 0 : at().dtype == DType::bf16 ? 1e-2 : 2e-6;
    EXPECT_LE(testing::worst_error(own.dqkv.values(), rows_of(whole.dqkv, group).values(), 1), tolerance);
    EXPECT_LE(testing::worst_error(own.dsinks.values(), whole.dsinks.values(), 1), own_heads ? 0 : 2e-6);
    const Answer again = answer(&group);  // PF-2
    EXPECT_EQ(again.out.values(), own.out.values());
    EXPECT_EQ(again.dqkv.values(), own.dqkv.values());
  });
}

TEST_P(ContextAttention, is_attention_without_a_group) {  // PF-1
  Arena arena;
  Tape tape(ops_, arena, at().dtype, false);
  const OwnedTensor one = copy_of(*qkv_);
  Parameters parameters;
  const Var wanted = attention(tape, tape.input(one), options(sinks_of(parameters)), layout());
  EXPECT_EQ(answer(nullptr).out.values(), copy_of(wanted.value()).values());
}

/// Sequences end anywhere within parts; with 2 and 3 rows, some of the four parts are empty.
const AttentionCase cases[] = {
    {"grouped_causal_rotary", 4, true, 10000, DType::f32, {0, 5, 6, 19, 30}},
    {"grouped_windowed_capped", 4, true, 10000, DType::f32, {0, 5, 6, 19, 30}, 7, 2.5},
    {"grouped_windowed_ends", 4, true, 10000, DType::f32, {0, 9, 14}, 3, 0, {2, 2, 3, 8, 8, 8, 8, 8, 9, 1, 5, 5, 5, 5}},
    {"grouped_windowed_sinks", 4, true, 10000, DType::f32, {0, 5, 6, 19, 30}, 7, 0, {}, true},
    {"grouped_both_ways", 4, false, 0, DType::f32, {0, 7, 29}},
    {"grouped_both_ways_rotary_bf16", 4, false, 10000, DType::bf16, {0, 1, 2, 17, 23}},
    {"ungrouped_causal", 8, true, 0, DType::f32, {0, 150, 217}},
    {"ungrouped_causal_rotary_bf16", 8, true, 500, DType::bf16, {0, 9, 10, 33}},
    {"three_rows", 4, true, 10000, DType::f32, {0, 2, 3}},
    {"two_rows", 8, false, 0, DType::bf16, {0, 2}},
    {"one_row", 4, true, 10000, DType::f32, {0, 1}},
    {"two_key_heads_windowed_sinks", 2, true, 10000, DType::f32, {0, 5, 6, 19, 30}, 7, 0, {}, true},
    {"two_key_heads_bf16", 2, true, 10000, DType::bf16, {0, 1, 2, 17, 23}},
    {"one_key_head", 1, false, 10000, DType::f32, {0, 7, 29}},
    {"nine_heads", 3, true, 10000, DType::f32, {0, 150, 150, 153, 400}, 0, 0, {}, false, 9},
    {"nine_heads_windowed_capped_sinks", 3, true, 10000, DType::f32, {0, 1, 70, 300}, 90, 2.5, {}, true, 9},
    {"nine_heads_bf16", 3, true, 10000, DType::bf16, {0, 200, 330}, 0, 0, {}, false, 9},
    {"nine_heads_axes_both_ways", 3, false, 10000, DType::f32, {0, 130, 170}, 0, 0, {}, false, 9, 3},
    {"nine_heads_three_rows", 9, true, 10000, DType::f32, {0, 2, 3}, 0, 0, {}, true, 9},
    {"six_heads_windowed_ends",
     2,
     true,
     0,
     DType::f32,
     {0, 9, 14},
     3,
     0,
     {2, 2, 3, 8, 8, 8, 8, 8, 9, 1, 5, 5, 5, 5},
     false,
     6},
    {"six_heads", 2, true, 10000, DType::f32, {0, 65, 300}, 0, 0, {}, true, 6},
    {"four_heads_of_a_key_head", 1, true, 10000, DType::f32, {0, 300, 310}, 0, 0, {}, true, 4},
    {"single_head", 1, true, 10000, DType::f32, {0, 64, 128, 500}, 0, 0, {}, false, 1},
    {"twelve_heads_of_four_key_heads", 4, true, 10000, DType::f32, {0, 100, 300}, 0, 0, {}, false, 12},
};
INSTANTIATE_TEST_SUITE_P(Parts, ContextAttention,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 6, 8), ::testing::ValuesIn(cases)),
                         [](const auto& at) {
                           return std::string(std::get<1>(at.param).name) + "_over_" +
                                  std::to_string(std::get<0>(at.param));
                         });

TEST(ContextAttentionOfNothing, has_no_rows) {
  const cpu::CpuOperatorTable ops;
  on_ranks(2, [&](Communicator& group) {
    Arena arena;
    Tape tape(ops, arena, DType::f32, true);
    const AttentionOptions options{.shape = {.heads = 4, .kv_heads = 2, .head_size = 4, .causal = true},
                                   .rotary = testing::shared_frequencies(100, 4)};
    const std::vector<std::int32_t> offsets = {0};
    const OwnedTensor qkv(DType::f32, {0, options.shape.qkv_columns()});
    const Var x = tape.input(qkv, true);
    const Var y = context_attention(tape, x, options, {.offsets = offsets, .positions = {}}, &group);
    EXPECT_EQ(y.value().shape(), (Shape{0, 16}));
    const OwnedTensor seed(DType::f32, {0, 16});
    tape.seed(y, seed);
    tape.backward();
    EXPECT_EQ(x.gradient().shape(), (Shape{0, options.shape.qkv_columns()}));
  });
}

TEST(ContextAttentionInParts, keeps_the_rows_of_the_rank_only_and_exchanges_key_heads_in_steps) {
  const cpu::CpuOperatorTable ops;
  const AttentionOptions options{.shape = {.heads = 9, .kv_heads = 3, .head_size = 16, .causal = true},
                                 .rotary = nullptr};
  const std::vector<std::int32_t> offsets = {0, 100, 512};
  on_ranks(2, [&](Communicator& group) {
    Arena arena;
    Tape tape(ops, arena, DType::f32, true);
    const OwnedTensor qkv(DType::f32, {256, options.shape.qkv_columns()});
    qkv.fill(1);
    const Var y =
        context_attention(tape, tape.input(qkv, true), options, {.offsets = offsets, .positions = {}}, &group);
    const std::size_t log_sums = std::size_t{256} * 9 * sizeof(float);
    EXPECT_LE(arena.used_bytes(), y.value().bytes() + log_sums + 128);
    const OwnedTensor seed(DType::f32, y.value().shape());
    tape.seed(y, seed);
    tape.backward();
    EXPECT_LT(arena.peak_bytes(), 5 * qkv.tensor().bytes()) << "in a single step it would be 9 times";
  });
}

TEST(QueryRows, are_tiles_of_each_sequence_in_turn) {
  const std::vector<std::int32_t> offsets = {0, 64, 64, 264, 270};
  const auto rows = [&](std::int64_t part, std::int64_t parts, RowRange among) {
    return query_rows(offsets, {part, parts}, among);
  };
  using Ranges = std::vector<RowRange>;
  EXPECT_EQ(rows(0, 1, {0, 270}), (Ranges{{0, 270}}));
  // The third sequence begins at row 64, with its tiles 0 to 3 in parts 0, 1, 1, 0; the fourth is a tile of part 1.
  EXPECT_EQ(rows(0, 2, {0, 270}), (Ranges{{0, 128}, {256, 8}}));
  EXPECT_EQ(rows(1, 2, {0, 270}), (Ranges{{128, 128}, {264, 6}}));
  EXPECT_EQ(rows(1, 2, {150, 110}), (Ranges{{150, 106}}));
  EXPECT_EQ(rows(1, 2, {0, 128}), Ranges{});
  EXPECT_EQ(rows(2, 5, {0, 270}), (Ranges{{64, 64}}));
  const std::vector<std::int32_t> one = {0, 4096};  // tiles of 128 rows
  EXPECT_EQ(query_rows(one, {0, 2}, {0, 1024}), (Ranges{{0, 128}, {384, 256}, {896, 128}}));
  EXPECT_EQ(query_rows(one, {0, 2}, {3500, 596}), (Ranges{{3500, 212}, {3968, 128}}));
}

}  // namespace
}  // namespace maestro
