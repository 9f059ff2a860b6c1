// SPDX-License-Identifier: Apache-2.0
// The gated delta rule by chunks against its recurrence in f64, row by row, and what it has bit for bit.
//
// Tolerances are relative to the largest value. f32: a state has sums of as many terms as a sample has rows, 200 *
// 2^-24 = 1e-5. bf16: inputs are exact, results are rounded once, 2^-9.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/backends.hpp"
#include "tests/ops/delta_recurrence.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {
namespace {

constexpr DeltaShape shapes[] = {{2, 4, 8, 8}, {1, 1, 5, 20}, {1, 3, 33, 16}};

struct DeltaSetting {
  Backend backend;
  DType act;
  DeltaShape shape;
};

std::vector<DeltaSetting> delta_settings() {
  std::vector<DeltaSetting> all;
  for (const Backend& backend : backends()) {
    for (const DeltaShape& shape : shapes) {
      for (const DType act : {DType::f32, DType::bf16}) all.push_back({backend, act, shape});
    }
  }
  return all;
}

using Offsets = std::vector<std::int32_t>;

class DeltaRules : public ::testing::TestWithParam<DeltaSetting> {
 protected:
  struct Inputs {
    OwnedTensor qkv, gates, dout;
  };
  struct Answer {
    OwnedTensor out, dqkv, dgates, da_log, ddt_bias;
  };
  [[nodiscard]] const DeltaShape& shape() const { return GetParam().shape; }
  [[nodiscard]] double tolerance() const { return GetParam().act == DType::bf16 ? 1.0 / 256 : 2e-5; }
  OwnedTensor random(std::int64_t rows, std::int64_t columns) {
    return {GetParam().act, {rows, columns}, exact_normals(generator_, rows * columns)};
  }
  Inputs inputs(std::int64_t rows) {
    return {random(rows, shape().qkv_columns()), random(rows, 2 * shape().value_heads),
            random(rows, shape().value_columns())};
  }
  /// Returns rows of the inputs.
  [[nodiscard]] static Inputs rows_of(const Inputs& all, std::int64_t first, std::int64_t count) {
    const auto part = [&](const OwnedTensor& of) {
      const std::int64_t columns = of.tensor().columns();
      const Values values = of.values();
      return OwnedTensor(of.tensor().dtype(), {count, columns},
                         {values.begin() + first * columns, values.begin() + (first + count) * columns});
    };
    return {part(all.qkv), part(all.gates), part(all.dout)};
  }
  [[nodiscard]] static Values rows_of(const OwnedTensor& of, std::int64_t first, std::int64_t count) {
    const Values all = of.values();
    const auto begin = all.begin() + first * of.tensor().columns();
    return {begin, begin + count * of.tensor().columns()};
  }
  [[nodiscard]] Answer answer(const Inputs& in, const Offsets& offsets) const {
    const std::int64_t rows = in.qkv.tensor().rows(), heads = shape().value_heads;
    const DType act = GetParam().act;
    Answer made{{act, {rows, shape().value_columns()}},
                {act, {rows, shape().qkv_columns()}},
                {act, {rows, 2 * heads}},
                {DType::f32, {heads}, Values(static_cast<std::size_t>(heads), 2)},
                {DType::f32, {heads}, Values(static_cast<std::size_t>(heads), 3)}};
    const SequenceLayout layout{.offsets = offsets};
    const OwnedTensor states(
        DType::f32, {delta_state_place(rows, layout.sequences()), heads * shape().key_size * shape().value_size});
    states.fill(1e6);
    ops_->run(DeltaRule{.qkv = in.qkv,
                        .gates = in.gates,
                        .a_log = a_log_,
                        .dt_bias = dt_bias_,
                        .shape = shape(),
                        .layout = layout,
                        .out = made.out,
                        .states = states});
    ops_->run(DeltaRuleBackward{.dout = in.dout,
                                .qkv = in.qkv,
                                .gates = in.gates,
                                .a_log = a_log_,
                                .dt_bias = dt_bias_,
                                .states = states,
                                .shape = shape(),
                                .layout = layout,
                                .dqkv = made.dqkv,
                                .dgates = made.dgates,
                                .da_log = made.da_log,
                                .ddt_bias = made.ddt_bias});
    return made;
  }

  std::mt19937 generator_{5};
  std::unique_ptr<OperatorTable> ops_ = GetParam().backend.make();
  OwnedTensor a_log_{DType::f32, {shape().value_heads}, exact_normals(generator_, shape().value_heads)};
  OwnedTensor dt_bias_{DType::f32, {shape().value_heads}, exact_normals(generator_, shape().value_heads)};
};

TEST_P(DeltaRules, values_and_gradients_agree_with_the_recurrence) {
  for (const Offsets& offsets : {Offsets{0, 1}, {0, 63}, {0, 64}, {0, 65}, {0, 200}, {0, 1, 1, 64, 129, 270}}) {
    SCOPED_TRACE(std::to_string(offsets.back()) + " rows");
    const Inputs in = inputs(offsets.back());
    const Answer own = answer(in, offsets);
    const DeltaRecurrence wanted(shape(), in.qkv.values(), in.gates.values(), a_log_.values(), dt_bias_.values(),
                                 offsets, in.dout.values());
    EXPECT_LT(worst_error(own.out.values(), wanted.out), tolerance());
    EXPECT_LT(worst_error(own.dqkv.values(), wanted.dqkv), tolerance());
    EXPECT_LT(worst_error(own.dgates.values(), wanted.dgates), tolerance());
    Values da_log = own.da_log.values(), ddt_bias = own.ddt_bias.values();
    for (double& value : da_log) value -= 2;  // what was there
    for (double& value : ddt_bias) value -= 3;
    EXPECT_LT(worst_error(da_log, wanted.da_log, 1), 1e-4);
    EXPECT_LT(worst_error(ddt_bias, wanted.ddt_bias, 1), 1e-4);
  }
}

TEST_P(DeltaRules, gates_of_any_size_are_finite) {
  constexpr std::int64_t rows = 70;
  const Inputs in = inputs(rows);
  const std::int64_t heads = shape().value_heads;
  for (std::int64_t i = 0; i < rows * 2 * heads; ++i) in.gates.set(i, i % 3 == 0 ? 200 : i % 3 == 1 ? -200 : 0);
  const Answer own = answer(in, {0, rows});
  const DeltaRecurrence wanted(shape(), in.qkv.values(), in.gates.values(), a_log_.values(), dt_bias_.values(),
                               {0, rows}, in.dout.values());
  // Rows with beta = 1 that do not fade: the solution of a chunk's system adds up errors of all its rows.
  EXPECT_LT(worst_error(own.out.values(), wanted.out), 10 * tolerance());
  EXPECT_LT(worst_error(own.dqkv.values(), wanted.dqkv), 10 * tolerance());
  EXPECT_LT(worst_error(own.dgates.values(), wanted.dgates, 1), 10 * tolerance());
}

TEST_P(DeltaRules, a_packed_sample_has_the_bits_that_it_has_alone) {  // DR-1
  const Offsets offsets{0, 1, 1, 66, 69, 199};
  const Inputs in = inputs(offsets.back());
  const Answer packed = answer(in, offsets);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int32_t first = offsets[i], count = offsets[i + 1] - first;
    const Answer alone = answer(rows_of(in, first, count), {0, count});
    EXPECT_EQ(alone.out.values(), rows_of(packed.out, first, count)) << i;
    EXPECT_EQ(alone.dqkv.values(), rows_of(packed.dqkv, first, count)) << i;
    EXPECT_EQ(alone.dgates.values(), rows_of(packed.dgates, first, count)) << i;
  }
}

TEST_P(DeltaRules, a_sequence_in_pieces_continues_the_whole) {  // LC-1
  constexpr std::int32_t rows = 150;
  const Inputs in = inputs(rows);
  const Values whole = answer(in, {0, rows}).out.values();
  for (const std::vector<std::int64_t>& pieces :
       {std::vector<std::int64_t>{150}, {1, 1, 1, 100, 2, 0, 45}, {64, 64, 22}, {149, 1}}) {
    const OwnedTensor state(DType::f32, {1, shape().value_heads * shape().key_size * shape().value_size});
    state.fill(1e6);  // what is before the sequence is not read
    const OwnedTensor out(GetParam().act, {rows, shape().value_columns()});
    std::int64_t first = 0;
    for (const std::int64_t count : pieces) {
      ops_->run(CachedDelta{.qkv = in.qkv.tensor().row_slice(first, count),
                            .gates = in.gates.tensor().row_slice(first, count),
                            .a_log = a_log_,
                            .dt_bias = dt_bias_,
                            .shape = shape(),
                            .state = state,
                            .first = first,
                            .out = out.tensor().row_slice(first, count)});
      first += count;
    }
    EXPECT_LT(worst_error(out.values(), whole), tolerance());
  }
}

TEST_P(DeltaRules, a_row_of_each_sequence_has_the_bits_that_it_has_alone) {
  const std::vector<std::int64_t> lengths{1, 25, 2, 70};
  const std::int64_t elements = shape().value_heads * shape().key_size * shape().value_size;
  const auto slots = std::ssize(lengths);
  const OwnedTensor states(DType::f32, {slots, elements}), alone(DType::f32, {1, elements});
  states.fill(1e6);
  const Inputs last = inputs(slots);
  std::vector<CachedSequence> sequences;
  Values wanted, wanted_states;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t before = lengths[static_cast<std::size_t>(slot)] - 1, place = slots - 1 - slot;
    const Inputs in = inputs(before), row = rows_of(last, slot, 1);
    const OwnedTensor out(GetParam().act, {before, shape().value_columns()});
    const OwnedTensor out_row(GetParam().act, {1, shape().value_columns()});
    CachedDelta call{.qkv = in.qkv,
                     .gates = in.gates,
                     .a_log = a_log_,
                     .dt_bias = dt_bias_,
                     .shape = shape(),
                     .state = states.tensor().row_slice(place, 1),
                     .out = out};
    ops_->run(call);
    std::copy_n(call.state.data<float>(), elements, alone.tensor().data<float>());
    call = {.qkv = row.qkv,
            .gates = row.gates,
            .a_log = a_log_,
            .dt_bias = dt_bias_,
            .shape = shape(),
            .state = alone,
            .first = before,
            .out = out_row};
    ops_->run(call);
    const Values values = out_row.values();
    wanted.insert(wanted.end(), values.begin(), values.end());
    sequences.push_back({static_cast<std::int32_t>(place), static_cast<std::int32_t>(before)});
  }
  const OwnedTensor out(GetParam().act, {slots, shape().value_columns()});
  ops_->run(CachedDelta{.qkv = last.qkv,
                        .gates = last.gates,
                        .a_log = a_log_,
                        .dt_bias = dt_bias_,
                        .shape = shape(),
                        .state = states,
                        .out = out,
                        .sequences = sequences});
  EXPECT_EQ(out.values(), wanted);
  EXPECT_EQ(rows_of(states, 0, 1), alone.values());  // of the last sequence
}

TEST(DeltaStates, have_a_place_for_each_chunk) {  // DR-2
  for (const Offsets& offsets : {Offsets{0}, {0, 1, 2, 3}, {0, 64, 65, 192, 192, 256}, {0, 63, 126, 255}}) {
    std::int64_t next = 0;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const std::int64_t place = delta_state_place(offsets[i], static_cast<std::int64_t>(i));
      EXPECT_GE(place, next);
      next = place + (offsets[i + 1] - offsets[i] + delta_chunk - 1) / delta_chunk;
    }
    EXPECT_LE(next, delta_state_place(offsets.back(), std::ssize(offsets) - 1));
  }
}

INSTANTIATE_TEST_SUITE_P(all, DeltaRules, ::testing::ValuesIn(delta_settings()), [](const auto& test) {
  const DeltaShape& shape = test.param.shape;
  return test.param.backend.name + "_" + std::string(name_of(test.param.act)) + "_" +
         std::to_string(shape.value_heads) + "_heads_of_" + std::to_string(shape.key_size) + "_by_" +
         std::to_string(shape.value_size);
});

}  // namespace
}  // namespace maestro::testing
