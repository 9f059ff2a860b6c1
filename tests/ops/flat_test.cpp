// SPDX-License-Identifier: Apache-2.0
// Operators on flat f32 ranges, on every backend.
#include <gtest/gtest.h>

#include <algorithm>
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

template <class Value>
Tensor vector_of(std::vector<Value>& values) {
  return {values.data(), dtype_of<Value>, Shape{static_cast<std::int64_t>(values.size())}};
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
                    .mean = vector_of(mean),
                    .variance = vector_of(variance),
                    .step = {.lr = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1,
                             .step = step,
                             .gradient_scale = 0.5}});
    EXPECT_EQ(gradient, std::vector<float>(gradient.size(), 0.0F));
    // A few f32 roundings of values below 2.
    EXPECT_LT(worst_error(Values(value.begin(), value.end()), recorded.at("adamw.value" + std::to_string(step))), 1e-6);
  }
}

/// Average moments after `steps` updates with the constant gradient 0.75. The gradients differ in their last place by
/// element, so that each element has other random roundings; the difference affects nothing else that is measured.
struct Averages {
  double mean = 0;
  double variance = 0;
};
template <class Moment>
Averages averages_after(const OperatorTable& ops, int steps, double beta2) {
  constexpr std::size_t count = 4001;
  std::vector<float> value(count);
  std::vector<Moment> mean(count);
  std::vector<Moment> variance(count);
  for (int step = 1; step <= steps; ++step) {
    std::vector<float> gradient(count);
    for (std::size_t i = 0; i < count; ++i) gradient[i] = 0.75F + static_cast<float>(i) * 0x1p-24F;
    ops.run(AdamW{.value = value,
                  .gradient = gradient,
                  .mean = vector_of(mean),
                  .variance = vector_of(variance),
                  .step = {.lr = 1e-3, .beta1 = 0.99, .beta2 = beta2, .step = step}});
  }
  Averages sums;
  for (const Moment each : mean) sums.mean += static_cast<float>(each) / count;
  for (const Moment each : variance) sums.variance += static_cast<float>(each) / count;
  return sums;
}

TEST_P(Flat, moments_in_bf16_move_as_those_in_f32_where_a_change_is_below_their_last_place) {
  // A step changes a second moment near its limit, 0.5625, by less than 1e-3 of it; its last place is 4e-3.
  constexpr int steps = 2000;
  const Averages wide = averages_after<float>(*ops_, steps, 0.999);
  const Averages narrow = averages_after<bfloat16>(*ops_, steps, 0.999);
  EXPECT_GT(wide.variance, 0.48);
  // Roundings of 4001 elements average out: one in 60 of at most 0.003 remains, for this step and earlier steps.
  EXPECT_NEAR(narrow.variance, wide.variance, 2e-3 * wide.variance);
  EXPECT_NEAR(narrow.mean, wide.mean, 2e-3 * wide.mean);
}

TEST_P(Flat, an_element_is_rounded_alike_wherever_it_lies) {
  constexpr std::size_t count = 100;
  const std::vector<float> given = random_floats(count);
  std::vector<float> value(count), gradient = given;
  std::vector<bfloat16> mean(count), variance(count);
  const auto update = [&](std::size_t first, std::size_t size) {
    const auto part = [&](auto& moments) {
      return vector_of(moments).flat_slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(size));
    };
    ops_->run(AdamW{.value = std::span(value).subspan(first, size),
                    .gradient = std::span(gradient).subspan(first, size),
                    .mean = part(mean),
                    .variance = part(variance),
                    .step = {.lr = 0.01, .step = 5}});
  };
  update(0, count);
  const std::vector<float> values = value;
  const std::vector<bfloat16> means = mean, variances = variance;
  value.assign(count, 0);
  gradient = given;
  mean.assign(count, bfloat16());
  variance.assign(count, bfloat16());
  for (std::size_t first = 0, size = 1; first < count; first += size++) update(first, std::min(size, count - first));
  EXPECT_EQ(value, values);
  EXPECT_TRUE(std::ranges::equal(mean, means, {}, &bfloat16::bits, &bfloat16::bits));
  EXPECT_TRUE(std::ranges::equal(variance, variances, {}, &bfloat16::bits, &bfloat16::bits));
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
