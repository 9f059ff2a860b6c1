// SPDX-License-Identifier: Apache-2.0
// The gated delta rule over context parts: ranks exchange rows for heads.
#include <gtest/gtest.h>

#include <optional>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/delta_functions.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro {
namespace {

using testing::copy_of;
using testing::on_ranks;
using testing::OwnedTensor;
using testing::rows_of;
using testing::Values;

class ContextDelta : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {
 protected:
  struct Answer {
    OwnedTensor y, dqkv, dgates, da_log, ddt_bias;
  };
  static constexpr DeltaShape shape{4, 8, 6, 5};

  ContextDelta() {
    std::mt19937 generator(3);
    const auto random = [&](std::optional<OwnedTensor>& to, std::int64_t columns) {
      to.emplace(act(), Shape{rows(), columns}, testing::exact_normals(generator, rows() * columns));
    };
    random(qkv_, shape.qkv_columns());
    random(gates_, 2 * shape.value_heads);
    random(dy_, shape.value_columns());
    a_log_ = testing::exact_normals(generator, shape.value_heads);
    dt_bias_ = testing::exact_normals(generator, shape.value_heads);
  }
  [[nodiscard]] static DType act() { return std::get<1>(GetParam()); }
  [[nodiscard]] static std::int64_t context() { return std::get<0>(GetParam()); }
  [[nodiscard]] std::int64_t rows() const { return offsets_.back(); }

  /// Returns the answer for a rank's rows; without a group, for all rows.
  [[nodiscard]] Answer answer(Communicator* group) const {
    Arena arena;
    Tape tape(ops_, arena, act(), true);
    Parameters parameters;
    const auto add = [&](const char* name, const Values& values) {
      return &parameters.add(
          {name, {shape.value_heads}, false, [values](std::span<float> to) { std::ranges::copy(values, to.begin()); }});
    };
    const DeltaWeights weights{add("a_log", a_log_), add("dt_bias", dt_bias_)};
    parameters.allocate(true);
    const auto own = [&](const std::optional<OwnedTensor>& of) {
      return group == nullptr ? copy_of(*of) : rows_of(*of, *group);
    };
    const OwnedTensor own_qkv = own(qkv_), own_gates = own(gates_), seed = own(dy_);
    const Var qkv = tape.input(own_qkv, true), gates = tape.input(own_gates, true);
    const Var y = delta_rule(tape, qkv, gates, weights, shape, {.offsets = offsets_}, group);
    OwnedTensor value = copy_of(y.value());
    tape.seed(y, seed);
    tape.backward();
    return {std::move(value), copy_of(qkv.gradient()), copy_of(gates.gradient()), copy_of(weights.a_log->gradient()),
            copy_of(weights.dt_bias->gradient())};
  }

  cpu::CpuOperatorTable ops_;
  std::vector<std::int32_t> offsets_{0, 5, 6, 75, 81};
  std::optional<OwnedTensor> qkv_, gates_, dy_;
  Values a_log_, dt_bias_;
};

TEST_P(ContextDelta, gives_each_rank_its_rows_of_the_whole_result_and_gradient_bit_for_bit) {
  const Answer whole = answer(nullptr);
  std::vector<Values> da_log(static_cast<std::size_t>(context())), ddt_bias(da_log.size());
  on_ranks(context(), [&](Communicator& group) {
    const Answer own = answer(&group);
    EXPECT_EQ(own.y.values(), rows_of(whole.y, group).values());
    EXPECT_EQ(own.dqkv.values(), rows_of(whole.dqkv, group).values());
    EXPECT_EQ(own.dgates.values(), rows_of(whole.dgates, group).values());
    da_log[static_cast<std::size_t>(group.rank())] = own.da_log.values();
    ddt_bias[static_cast<std::size_t>(group.rank())] = own.ddt_bias.values();
  });
  const auto sum = [](const std::vector<Values>& parts) {
    Values all(parts.front().size());
    for (const Values& part : parts) std::ranges::transform(all, part, all.begin(), std::plus());
    return all;
  };
  EXPECT_EQ(sum(da_log), whole.da_log.values());  // a head's gradient is a single rank's
  EXPECT_EQ(sum(ddt_bias), whole.ddt_bias.values());
}

TEST_P(ContextDelta, refuses_ranks_that_cannot_share_the_heads) {
  on_ranks(3, [&](Communicator& group) { EXPECT_THROW((void)answer(&group), ShapeError); });
}

INSTANTIATE_TEST_SUITE_P(Parts, ContextDelta,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& at) {
                           return std::string(name_of(std::get<1>(at.param))) + "_over_" +
                                  std::to_string(std::get<0>(at.param));
                         });

}  // namespace
}  // namespace maestro
