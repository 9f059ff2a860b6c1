// SPDX-License-Identifier: Apache-2.0
// Convolutions over context parts: each rank reads the rows before its own that it lacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/parallel_functions.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro {
namespace {

using testing::copy_of;
using testing::on_ranks;
using testing::OwnedTensor;
using testing::rows_of;
using testing::Values;

struct ConvCase {
  const char* name;
  ConvolutionShape shape;
  DType dtype;
  std::vector<std::int32_t> offsets;
};
void PrintTo(const ConvCase& at, std::ostream* out) {
  *out << at.name;
}

constexpr std::int64_t channels = 10;

class ContextConv : public ::testing::TestWithParam<std::tuple<std::int64_t, ConvCase>> {
 protected:
  struct Answer {
    OwnedTensor y;
    OwnedTensor dx;
    OwnedTensor dweight;
    OwnedTensor dbias;
  };
  ContextConv() {
    std::mt19937 generator(3);
    const Shape in{rows(), (at().shape.gated ? 3 : 1) * channels};
    const auto normals = [&](std::int64_t count) { return testing::exact_normals(generator, count); };
    x_.emplace(at().dtype, in, normals(in.elements()));
    dy_.emplace(at().dtype, Shape{rows(), channels}, normals(rows() * channels));
    weight_ = normals(channels * at().shape.width);
    bias_ = normals(channels);
  }
  [[nodiscard]] const ConvCase& at() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::int64_t context() const { return std::get<0>(GetParam()); }
  [[nodiscard]] std::int64_t rows() const { return at().offsets.back(); }

  /// Returns the answer for a rank's rows; without a group, for all rows.
  [[nodiscard]] Answer answer(Communicator* group) const {
    Arena arena;
    Tape tape(ops_, arena, at().dtype, true);
    Parameters parameters;
    const auto filled = [](const Values& values) {
      return [values](std::span<float> to) { std::ranges::copy(values, to.begin()); };
    };
    Parameter& weight = parameters.add({"weight", {channels, 1, at().shape.width}, true, filled(weight_)});
    Parameter& bias = parameters.add({"bias", {channels}, false, filled(bias_)});
    parameters.allocate(true);
    const OwnedTensor own = group == nullptr ? copy_of(*x_) : rows_of(*x_, *group);
    const OwnedTensor seed = group == nullptr ? copy_of(*dy_) : rows_of(*dy_, *group);
    const Var x = tape.input(own, true);
    const Var y = context_conv(tape, x, {&weight, &bias}, at().shape, {.offsets = at().offsets}, group);
    OwnedTensor value = copy_of(y.value());
    tape.seed(y, seed);
    tape.backward();
    return {std::move(value), copy_of(x.gradient()), copy_of(weight.gradient()), copy_of(bias.gradient())};
  }

  cpu::CpuOperatorTable ops_;
  std::optional<OwnedTensor> x_, dy_;
  Values weight_, bias_;
};

TEST_P(ContextConv, gives_each_rank_its_rows_of_the_whole_result_and_gradient) {
  const Answer whole = answer(nullptr);
  const double tolerance = at().dtype == DType::bf16 ? 1.0 / 128 : 1e-5;
  std::vector<Values> dweights(static_cast<std::size_t>(context())), dbiases(dweights.size());
  on_ranks(context(), [&](Communicator& group) {
    const Answer own = answer(&group);
    EXPECT_EQ(own.y.values(), rows_of(whole.y, group).values());  // bit for bit
    EXPECT_LE(testing::worst_error(own.dx.values(), rows_of(whole.dx, group).values(), 1), tolerance);
    dweights[static_cast<std::size_t>(group.rank())] = own.dweight.values();
    dbiases[static_cast<std::size_t>(group.rank())] = own.dbias.values();
    const Answer again = answer(&group);  // PF-2
    EXPECT_EQ(again.y.values(), own.y.values());
    EXPECT_EQ(again.dx.values(), own.dx.values());
    EXPECT_EQ(again.dweight.values(), own.dweight.values());
  });
  const auto sum = [](const std::vector<Values>& parts) {
    Values all(parts.front().size());
    for (const Values& part : parts) std::ranges::transform(all, part, all.begin(), std::plus());
    return all;
  };
  EXPECT_LE(testing::worst_error(sum(dweights), whole.dweight.values()), 1e-5);
  EXPECT_LE(testing::worst_error(sum(dbiases), whole.dbias.values()), 1e-5);
}

/// Samples end anywhere within parts; with few rows some of the parts are empty, or shorter than what others read.
const ConvCase conv_cases[] = {
    {"gated", {.width = 3, .gated = true}, DType::f32, {0, 5, 6, 19, 30}},
    {"gated_bf16", {.width = 3, .gated = true}, DType::bf16, {0, 5, 6, 19, 30}},
    {"silu_dilated", {.width = 4, .dilation = 3, .silu = true}, DType::f32, {0, 2, 31}},
    {"wider_than_parts", {.width = 4, .dilation = 2, .gated = true}, DType::f32, {0, 7}},
    {"wider_than_parts_bf16", {.width = 4, .dilation = 2, .gated = true}, DType::bf16, {0, 1, 7}},
    {"two_rows", {.width = 3, .gated = true}, DType::f32, {0, 2}},
    {"own_row_alone", {.width = 1, .silu = true}, DType::f32, {0, 9}},
    {"nothing", {.width = 3, .gated = true}, DType::f32, {0}},
};
INSTANTIATE_TEST_SUITE_P(Parts, ContextConv,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::ValuesIn(conv_cases)),
                         [](const auto& at) {
                           return std::string(std::get<1>(at.param).name) + "_over_" +
                                  std::to_string(std::get<0>(at.param));
                         });

std::vector<std::vector<std::int64_t>> numbers(const std::vector<HaloPart>& parts) {
  std::vector<std::vector<std::int64_t>> all;
  for (const HaloPart& part : parts) all.push_back({part.from, part.to, part.rows.first, part.rows.count});
  return all;
}

TEST(HaloParts, are_the_rows_of_its_sample_that_a_rank_lacks) {
  using ::testing::ElementsAre;
  const std::vector<std::int32_t> one{0, 12}, two{0, 7, 12}, few{0, 3};
  // Four ranks of three rows.
  EXPECT_THAT(numbers(halo_parts(one, 4, 2)),
              ElementsAre(ElementsAre(0, 1, 1, 2), ElementsAre(1, 2, 4, 2), ElementsAre(2, 3, 7, 2)));
  EXPECT_THAT(numbers(halo_parts(two, 4, 2)),
              ElementsAre(ElementsAre(0, 1, 1, 2), ElementsAre(1, 2, 4, 2), ElementsAre(2, 3, 7, 2)));
  // The second sample begins with the eighth row, so that the last rank reads only rows 7 and 8.
  EXPECT_THAT(numbers(halo_parts(two, 4, 5)), ElementsAre(ElementsAre(0, 1, 0, 3), ElementsAre(0, 2, 1, 2),
                                                          ElementsAre(1, 2, 3, 3), ElementsAre(2, 3, 7, 2)));
  // Ranks of no row, one row, one row, one row.
  EXPECT_THAT(numbers(halo_parts(few, 4, 2)),
              ElementsAre(ElementsAre(1, 2, 0, 1), ElementsAre(1, 3, 0, 1), ElementsAre(2, 3, 1, 1)));
  EXPECT_THAT(numbers(halo_parts(one, 4, 0)), ElementsAre());
  EXPECT_THAT(numbers(halo_parts(one, 1, 2)), ElementsAre());
}

}  // namespace
}  // namespace maestro
