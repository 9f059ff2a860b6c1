// SPDX-License-Identifier: Apache-2.0
// Heads are independent of each other, so attention over context parts has the same bits as on a single rank.
#include <gtest/gtest.h>

#include <optional>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
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
      for (std::int32_t place = 0; place < at().offsets[i + 1] - at().offsets[i]; ++place) positions_.push_back(place);
    }
    options_.shape = {.heads = 8,
                      .kv_heads = at().kv_heads,
                      .head_size = 6,
                      .causal = at().causal,
                      .window = at().window,
                      .softcap = at().softcap};
    if (at().theta > 0) options_.rotary = testing::shared_frequencies(at().theta, 6);
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
    return {.offsets = at().offsets, .positions = positions_, .ends = at().ends};
  }

  static Parameter& sinks_of(Parameters& parameters) {
    Parameter& sinks = parameters.add({"sinks", Shape{8}, false, {}});
    parameters.allocate(true);
    for (std::size_t head = 0; head < 8; ++head) sinks.value().span<float>()[head] = 0.5F * static_cast<float>(head);
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
    if (context() > at().kv_heads) {  // ranks share key heads: sums of gradients have another order
      const double tolerance = at().dtype == DType::bf16 ? 1e-2 : 1e-6;
      EXPECT_LT(testing::worst_error(own.dqkv.values(), rows_of(whole.dqkv, group).values(), 1), tolerance);
    } else {
      EXPECT_EQ(own.dqkv.values(), rows_of(whole.dqkv, group).values());
    }
    group.all_reduce_sum(own.dsinks.tensor().span<float>());  // as at the end of a step
    EXPECT_EQ(own.dsinks.values(), whole.dsinks.values());
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
};
INSTANTIATE_TEST_SUITE_P(Parts, ContextAttention,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8), ::testing::ValuesIn(cases)),
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

}  // namespace
}  // namespace maestro
