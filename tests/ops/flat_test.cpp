// SPDX-License-Identifier: Apache-2.0
// Operators on flat f32 ranges, on every backend.
#include <gtest/gtest.h>

#include <random>

#include "tests/ops/backends.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::testing {
namespace {

class Flat : public ::testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<OperatorTable> ops_ = GetParam().make();
};

std::vector<float> floats(const Values& values) {
  return {values.begin(), values.end()};
}

std::vector<float> random_floats(std::size_t count) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

TEST_P(Flat, three_adamw_steps_agree_with_pytorch_and_zero_the_gradient) {
  const Recorded recorded = read_recorded("operators.safetensors");
  std::vector<float> value = floats(recorded.at("adamw.value"));
  std::vector<float> mean(value.size());
  std::vector<float> variance(value.size());
  for (int step = 1; step <= 3; ++step) {
    std::vector<float> gradient = floats(recorded.at("adamw.gradient" + std::to_string(step)));
    // Clipping by half undoes a doubled gradient exactly.
    for (float& g : gradient) g *= 2;
    ops_->run(AdamW{.value = value,
                    .gradient = gradient,
                    .mean = mean,
                    .variance = variance,
                    .step = {.lr = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1,
                             .step = step,
                             .gradient_scale = 0.5}});
    EXPECT_EQ(gradient, std::vector<float>(gradient.size(), 0.0F));
    // A handful of f32 roundings of values below 2.
    EXPECT_LT(worst_error(Values(value.begin(), value.end()), recorded.at("adamw.value" + std::to_string(step))), 1e-6);
  }
}

TEST_P(Flat, adamw_on_an_empty_range_does_nothing) {
  ops_->run(AdamW{.step = {.lr = 1}});
  EXPECT_EQ(ops_->run(SumOfSquares{}), 0.0);
}

TEST_P(Flat, the_sum_of_squares_keeps_double_precision) {
  for (const std::size_t count : {1UL, 3UL, 16UL, 31UL, 33UL, 100003UL}) {
    const std::vector<float> values = random_floats(count);
    long double wanted = 0;
    for (const float value : values) wanted += static_cast<long double>(value) * value;
    const double got = ops_->run(SumOfSquares{.values = values});
    EXPECT_NEAR(got, static_cast<double>(wanted), 1e-13 * static_cast<double>(wanted)) << count;
    EXPECT_EQ(got, ops_->run(SumOfSquares{.values = values}));
  }
}

TEST_P(Flat, add_into_adds_every_element) {
  for (const std::size_t count : {1UL, 15UL, 17UL, 1000UL}) {
    std::vector<float> into = random_floats(count);
    const std::vector<float> values(count, 3.0F);
    std::vector<float> wanted = into;
    for (float& value : wanted) value += 3.0F;
    ops_->run(AddInto{.into = into, .values = values});
    EXPECT_EQ(into, wanted);
  }
}

TEST_P(Flat, casts_round_to_nearest_even_and_copies_copy) {
  const Values values = {1.0, 1.0 + 1.0 / 256, 1.0 + 3.0 / 256, -2.5, 1e-20, 3e38, 0.0};
  const auto count = static_cast<std::int64_t>(values.size());
  const OwnedTensor wide(DType::f32, {count}, values);
  const OwnedTensor narrow(DType::bf16, {count});
  ops_->run(Cast{.from = wide, .to = narrow});
  for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(narrow.get(i), static_cast<float>(bfloat16(wide.get(i))));
  const OwnedTensor copy(DType::f32, {count});
  ops_->run(Cast{.from = wide, .to = copy});
  EXPECT_EQ(copy.values(), wide.values());
}

TEST_P(Flat, add_takes_every_mix_of_precisions_and_may_write_onto_an_operand) {
  constexpr std::int64_t count = 37;
  std::mt19937 generator(9);
  for (const DType a_dtype : {DType::f32, DType::bf16}) {
    for (const DType b_dtype : {DType::f32, DType::bf16}) {
      const OwnedTensor a(a_dtype, {count}, exact_normals(generator, count));
      const OwnedTensor b(b_dtype, {count}, exact_normals(generator, count));
      Values wanted = a.values();
      for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += b.values()[i];
      ops_->run(Add{.a = a, .b = b, .out = a});
      EXPECT_LT(worst_error(a.values(), wanted), a_dtype == DType::bf16 ? 1.0 / 256 : 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, Flat, ::testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace maestro::testing
