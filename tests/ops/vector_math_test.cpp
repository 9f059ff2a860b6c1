// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "tests/ops/vector_math_probe.hpp"

namespace maestro::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

class VectorMath : public ::testing::TestWithParam<Isa> {
 protected:
  using Function = void (*)(const float*, float*, std::int64_t);
  static std::vector<float> apply(Function function, const std::vector<float>& x) {
    std::vector<float> y(x.size());
    function(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    return y;
  }
  const VectorMathProbe& probe_ = vector_math_probe(GetParam());
};

/// Returns a dense sweep with an odd number of points, so that the last vector is incomplete.
std::vector<float> sweep(double from, double to) {
  constexpr int points = 200003;
  std::vector<float> x;
  for (int i = 0; i < points; ++i) x.push_back(static_cast<float>(from + (to - from) * i / (points - 1)));
  return x;
}

TEST_P(VectorMath, exp_has_a_relative_error_below_2e_7) {
  for (const auto& x : {sweep(-87.3, 88.7), sweep(-1, 1), sweep(-1e-6, 1e-6)}) {
    const std::vector<float> y = apply(probe_.exp, x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(double{x[i]});
      worst = std::max(worst, std::abs(y[i] - exact) / exact);
    }
    EXPECT_LT(worst, 2e-7);
  }
}

TEST_P(VectorMath, exp_of_extremes_is_zero_infinity_one_or_nan) {
  const std::vector<float> y =
      apply(probe_.exp, {-infinity, -1e30F, -200.0F, 0.0F, 89.0F, 1e30F, infinity, std::nanf("")});
  EXPECT_EQ(std::vector<float>(y.begin(), y.end() - 1), (std::vector<float>{0, 0, 0, 1, infinity, infinity, infinity}));
  EXPECT_TRUE(std::isnan(y.back()));
}

TEST_P(VectorMath, sigmoid_has_a_relative_error_below_4e_7) {
  const std::vector<float> x = sweep(-87, 87);
  const std::vector<float> y = apply(probe_.sigmoid, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = 1 / (1 + std::exp(-double{x[i]}));
    worst = std::max(worst, std::abs(y[i] - exact) / exact);
  }
  EXPECT_LT(worst, 4e-7);
}

TEST_P(VectorMath, tanh_has_a_relative_error_below_4e_7_and_stays_within_1) {
  const std::vector<float> x = sweep(-20, 20);
  const std::vector<float> y = apply(probe_.tanh, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::tanh(double{x[i]});
    worst = std::max(worst, std::abs(y[i] - exact) / std::max(1e-30, std::abs(exact)));
    ASSERT_LE(std::abs(y[i]), 1);
  }
  EXPECT_LT(worst, 4e-7);
  EXPECT_TRUE(std::isnan(apply(probe_.tanh, {NAN}).front()));
}

TEST_P(VectorMath, every_bf16_survives_the_way_to_f32_and_back) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(bits.size());
  probe_.from_bf16(bits.data(), wide.data(), 65536);
  std::vector<std::uint16_t> back(bits.size());
  probe_.to_bf16(wide.data(), back.data(), 65536);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (std::isnan(wide[i])) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(std::uint32_t{back[i]} << 16))) << i;
    } else {
      EXPECT_EQ(back[i], bits[i]);
    }
  }
}

TEST_P(VectorMath, narrowing_rounds_as_the_bfloat16_type_does) {
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper < 65536; upper += 7) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      x.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  std::vector<std::uint16_t> y(x.size());
  probe_.to_bf16(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], bfloat16(x[i]).bits) << x[i];
}

TEST_P(VectorMath, lanes_are_summed_and_compared) {
  std::vector<float> x;
  for (int lane = 0; lane < probe_.width; ++lane) x.push_back(static_cast<float>((lane * 5) % probe_.width - 2));
  float sum = 0;
  float largest = -infinity;
  for (const float value : x) {
    sum += value;
    largest = std::max(largest, value);
  }
  EXPECT_EQ(probe_.sum(x.data()), sum);
  EXPECT_EQ(probe_.max(x.data()), largest);
}

TEST_P(VectorMath, a_square_is_transposed) {
  const auto width = static_cast<std::size_t>(probe_.width);
  std::vector<float> x(width * width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  std::vector<float> y(x.size());
  probe_.transpose(x.data(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i % width * width + i / width]);
}

INSTANTIATE_TEST_SUITE_P(every_set, VectorMath, ::testing::ValuesIn(supported_isas()),
                         [](const auto& set) { return std::string(name_of(set.param)); });

}  // namespace
}  // namespace maestro::cpu
