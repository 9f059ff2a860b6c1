// SPDX-License-Identifier: Apache-2.0
#include "sections/section_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "runtime/core/result.hpp"
#include "tests/build/outside/section.hpp"

namespace maestro {
namespace {

/// Computes y = factor x^2 with the gradient 2 slope x, for its input and for its only parameter.
class Square final : public Section {
 public:
  Square(const SectionContext& context, float factor, float slope) : factor_(factor), slope_(slope) {
    weight_ = &parameters_.add({"weight", Shape{1, 2}, true, ParameterInit(context.seed, context.name).normal("w", 1)});
    context.allocate(parameters_);
  }
  [[nodiscard]] Ports ports() const override {
    return {{{"x", DType::f32, 2, true, false}}, {{"y", DType::f32, 2, true, false}}};
  }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    const Var x = linear(tape, inputs["x"], *weight_, nullptr);  // (M, 1)
    const Var y = tape.output({x.value().rows(), 2}, DType::f32, true);
    const auto in = x.value().span<float>();
    const auto out = y.value().span<float>();
    for (std::size_t at = 0; at < out.size(); ++at) out[at] = factor_ * in[at / 2] * in[at / 2];
    tape.record(y, [this, &tape, x, y] {
      const Tape::Target target = tape.gradient_target(x);
      const auto dx = target.tensor.span<float>();
      for (std::size_t at = 0; at < dx.size(); ++at) {
        const float dy = y.gradient().span<float>()[2 * at] + y.gradient().span<float>()[2 * at + 1];
        dx[at] = (target.accumulate ? dx[at] : 0) + 2 * slope_ * x.value().span<float>()[at] * dy;
      }
    });
    outputs.set("y", y);
  }
  [[nodiscard]] Cost cost(const SampleShape& /*sample*/) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  float factor_;
  float slope_;
  Parameters parameters_;
  Parameter* weight_;
};

std::vector<GradientCheck> checked(float factor, float slope) {
  return check_gradients(
      [=](const SectionContext& context) { return std::make_unique<Square>(context, factor, slope); });
}

TEST(SectionCheck, agrees_with_a_right_backward_pass_by_parameter_and_input) {  // SK-1, SK-2
  const auto checks = checked(3, 3);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].name, "weight");
  EXPECT_EQ(checks[1].name, "x");
  for (const GradientCheck& check : checks) {
    EXPECT_TRUE(check.agrees(1e-3)) << check.text();
    EXPECT_GT(std::abs(check.forward), 0.1) << check.text();
  }
}

TEST(SectionCheck, finds_a_slope_that_is_wrong_by_a_twentieth) {  // SK-1
  for (const GradientCheck& check : checked(3, 3.15f)) EXPECT_FALSE(check.agrees()) << check.text();
}

TEST(SectionCheck, derives_the_loss_of_a_section_without_outputs) {  // SK-2
  outside::BigramModel::Options options;
  options.width = 8;
  options.vocabulary = 16;
  const auto checks = check_gradients(
      [&](const SectionContext& context) { return std::make_unique<outside::BigramModel>(context, options); });
  EXPECT_EQ(checks.size(), 4u);
  for (const GradientCheck& check : checks) EXPECT_TRUE(check.agrees()) << check.text();
}

}  // namespace
}  // namespace maestro
