// SPDX-License-Identifier: Apache-2.0
#include "sections/optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

OptimizerConfig settings(LearningRateSchedule schedule) {
  OptimizerConfig config;
  config.lr = 1.0;
  config.min_lr = 0.2;
  config.warmup_steps = 4;
  config.schedule = schedule;
  return config;
}

TEST(AdamWOptimizer, warm_up_rises_linearly_to_the_full_rate) {
  for (const auto schedule :
       {LearningRateSchedule::cosine, LearningRateSchedule::linear, LearningRateSchedule::constant}) {
    const AdamWOptimizer optimizer(settings(schedule), 14);
    for (const std::int64_t step : {1, 2, 3, 4}) {
      EXPECT_DOUBLE_EQ(optimizer.learning_rate(step), static_cast<double>(step) / 4) << name_of(schedule);
    }
    EXPECT_DOUBLE_EQ(optimizer.learning_rate(5), 1.0) << name_of(schedule);
  }
}

TEST(AdamWOptimizer, schedules_end_at_the_least_rate_and_stay_there) {
  const AdamWOptimizer cosine(settings(LearningRateSchedule::cosine), 14),
      linear(settings(LearningRateSchedule::linear), 14);
  EXPECT_DOUBLE_EQ(cosine.learning_rate(10), 0.6);  // half-way
  EXPECT_DOUBLE_EQ(linear.learning_rate(10), 0.6);
  EXPECT_NEAR(cosine.learning_rate(7), 0.2 + 0.8 * 0.5 * (1 + std::cos(0.2 * 3.14159265358979)), 1e-12);
  EXPECT_NEAR(linear.learning_rate(7), 1.0 - 0.8 * 0.2, 1e-12);
  for (const std::int64_t step : {15, 16, 1000}) {
    EXPECT_NEAR(cosine.learning_rate(step), 0.2, 1e-12);
    EXPECT_NEAR(linear.learning_rate(step), 0.2, 1e-12);
  }
  EXPECT_DOUBLE_EQ(AdamWOptimizer(settings(LearningRateSchedule::constant), 14).learning_rate(1000), 1.0);
}

TEST(AdamWOptimizer, a_schedule_that_begins_later_counts_from_there) {
  for (const auto schedule :
       {LearningRateSchedule::cosine, LearningRateSchedule::linear, LearningRateSchedule::constant}) {
    const AdamWOptimizer at_once(settings(schedule), 14), later(settings(schedule), {14, 100});
    for (std::int64_t step = 1; step < 20; ++step) {
      EXPECT_EQ(later.learning_rate(100 + step), at_once.learning_rate(step)) << step;
    }
  }
}

TEST(AdamWOptimizer, no_step_of_a_run_is_spent_at_a_rate_of_zero) {
  OptimizerConfig config;
  for (const auto schedule : {LearningRateSchedule::cosine, LearningRateSchedule::linear}) {
    config.schedule = schedule;
    for (const std::int64_t steps : {1, 2, 7}) {
      for (std::int64_t step = 1; step <= steps; ++step) {
        EXPECT_GT(AdamWOptimizer(config, steps).learning_rate(step), 0) << name_of(schedule) << ' ' << step;
      }
    }
  }
}

TEST(AdamWOptimizer, clipping_scales_long_gradients_only) {
  OptimizerConfig config;
  config.clip_norm = 2;
  const AdamWOptimizer optimizer(config, 10);
  EXPECT_EQ(*optimizer.clip_factor(1.9), 1.0);
  EXPECT_EQ(*optimizer.clip_factor(8.0), 0.25);
  config.clip_norm = 0;
  EXPECT_EQ(*AdamWOptimizer(config, 10).clip_factor(8.0), 1.0);
}

TEST(AdamWOptimizer, a_gradient_that_is_not_finite_has_no_clip_factor) {
  Bench bench;
  Parameters parameters;
  parameters.add({"w", Shape{2, 2}, true, {}});
  parameters.allocate(true);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    parameters.gradients()[1] = bad;
    const auto factor = AdamWOptimizer({}, 10).clip_factor(AdamWOptimizer::gradient_norm(*bench.ops, parameters));
    ASSERT_FALSE(factor.ok());
    EXPECT_NE(factor.error().message.find("lower lr"), std::string::npos);
  }
}

TEST(AdamWOptimizer, decays_matrices_alone_and_leaves_gradients_zero) {
  Bench bench;
  Parameters parameters;
  Parameter& vector = parameters.add({"b", Shape{3}, false, [](std::span<float> v) { std::ranges::fill(v, 1.0f); }});
  Parameter& matrix = parameters.add({"w", Shape{2, 3}, true, [](std::span<float> v) { std::ranges::fill(v, 1.0f); }});
  parameters.allocate(true);
  OptimizerConfig config;
  config.lr = 0.1;
  config.weight_decay = 0.5;
  config.schedule = LearningRateSchedule::constant;
  // Without a gradient AdamW only decays: w (1 - lr * decay).
  AdamWOptimizer(config, 10).step(*bench.ops, parameters, 1, 1.0);
  EXPECT_NEAR(matrix.value().data<float>()[5], 0.95f, 1e-6);
  EXPECT_EQ(vector.value().data<float>()[2], 1.0f);
  std::ranges::fill(parameters.gradients(), 3.0f);
  AdamWOptimizer(config, 10).step(*bench.ops, parameters, 2, 0.5);
  EXPECT_LT(vector.value().data<float>()[2], 1.0f);
  for (const float gradient : parameters.gradients()) EXPECT_EQ(gradient, 0.0f);
}

/// Adds a matrix of 40 elements and padding, then vectors: 48 decayed elements and 80 others.
void fill(Parameters& parameters, std::size_t replica, std::size_t replicas, DType moments) {
  constexpr const char* names[] = {"a", "b", "c"};
  for (const char* name : names) {
    parameters.add({name, name[0] == 'a' ? Shape{5, 8} : Shape{33}, name[0] == 'a',
                    [](std::span<float> v) { std::ranges::fill(v, 0.5f); }});
  }
  parameters.allocate(true, host_memory(), InitialValues::drawn, moments);
  if (replicas == 1) return;
  parameters.shard_optimizer_state(shard_range(static_cast<std::size_t>(parameters.elements()), replicas, replica));
}

Tensor part_of(const Tensor& vector, ShardRange range) {
  return vector.flat_slice(static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.count));
}
bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::equal(a.raw(), a.raw() + a.bytes(), b.raw());
}

class MomentsOf : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(dtypes, MomentsOf, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST_P(MomentsOf, replicas_that_share_moments_step_to_the_same_bits_as_one_that_keeps_them_all) {  // PA-4
  Bench bench;
  OptimizerConfig config;
  config.weight_decay = 0.3;  // the decayed elements end inside the middle of three shards
  const AdamWOptimizer optimizer(config, 10);
  for (std::size_t replicas = 1; replicas <= 12; ++replicas) {  // beyond 8 (parts of 16 elements) some keep none
    Parameters whole;
    fill(whole, 0, 1, GetParam());
    std::deque<Parameters> shared(replicas);
    for (std::size_t replica = 0; replica < replicas; ++replica) fill(shared[replica], replica, replicas, GetParam());
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto gradient = [&](std::size_t at) { return std::sin(static_cast<float>(at) + static_cast<float>(step)); };
      for (std::size_t at = 0; at < whole.gradients().size(); ++at) {
        whole.gradients()[at] = gradient(at);
        for (Parameters& parameters : shared) parameters.gradients()[at] = gradient(at);
      }
      optimizer.step(*bench.ops, whole, step, 0.7);
      for (Parameters& parameters : shared) optimizer.step(*bench.ops, parameters, step, 0.7);
      if (replicas == 1) continue;
      for (Parameters& to : shared) {
        for (Parameters& from : shared) {
          const ShardRange range = from.kept_moments();
          from.stage_shard(*bench.ops, ParameterBuffer::values);
          std::copy_n(from.gradients().data() + range.first, range.count, to.gradients().data() + range.first);
        }
        to.load_gathered_values(*bench.ops);
      }
    }
    for (Parameters& parameters : shared) {
      EXPECT_TRUE(std::ranges::equal(parameters.values(), whole.values())) << replicas;
      const ShardRange kept = parameters.kept_moments();
      EXPECT_TRUE(same_bytes(parameters.first_moments(), part_of(whole.first_moments(), kept)));
      EXPECT_TRUE(same_bytes(parameters.second_moments(), part_of(whole.second_moments(), kept)));
      EXPECT_EQ(parameters.updates(), 3);
    }
  }
}

TEST(AdamWOptimizer, the_norm_is_that_of_all_gradients_together) {
  Bench bench;
  Parameters parameters;
  Parameter& a = parameters.add({"a", Shape{1, 1}, true, {}});
  Parameter& b = parameters.add({"b", Shape{1}, false, {}});
  parameters.allocate(true);
  a.gradient().data<float>()[0] = 3;
  b.gradient().data<float>()[0] = -4;
  EXPECT_DOUBLE_EQ(AdamWOptimizer::gradient_norm(*bench.ops, parameters), 5.0);
}

/// A matrix, and loads and a bias of five experts, each with a gradient.
struct CountedParameters {
  Parameters parameters;
  Parameter& loads =
      parameters.add({.name = "loads", .shape = Shape{5}, .initialise = {}, .rule = {UpdateRule::Kind::loads, 2}});
  Parameter& bias =
      parameters.add({.name = "bias", .shape = Shape{5}, .initialise = {}, .rule = {UpdateRule::Kind::bias, 2, 0.25}});
  Parameter& weight = parameters.add({.name = "weight", .shape = Shape{3, 16}, .decayed = true, .initialise = {}});
  CountedParameters() {
    parameters.allocate(true);
    std::ranges::fill(weight.gradient().span<float>(), 0.5F);
    for (const Parameter* each : {&loads, &bias}) {
      std::ranges::copy(std::vector<float>{4, 0, 10, 2, 4}, each->gradient().span<float>().begin());  // of 10 tokens
    }
  }
};

TEST(AdamWOptimizer, counts_set_loads_and_move_the_bias) {
  const Bench bench;
  CountedParameters made;
  EXPECT_DOUBLE_EQ(AdamWOptimizer::gradient_norm(*bench.ops, made.parameters), std::sqrt(48 * 0.25));
  const AdamWOptimizer optimizer(settings(LearningRateSchedule::constant), 14);
  optimizer.step(*bench.ops, made.parameters, 1, 1e-3, 10);
  const auto values = [](const Parameter& parameter) {
    const std::span<float> held = parameter.value().span<float>();
    return std::vector<float>(held.begin(), held.end());
  };
  EXPECT_EQ(values(made.loads), (std::vector<float>{1, 0, 2.5, 0.5, 1}));
  EXPECT_EQ(values(made.bias), (std::vector<float>{0, 0.25, -0.25, 0.25, 0}));
  EXPECT_TRUE(std::ranges::all_of(made.parameters.gradients(), [](float value) { return value == 0; }));
}

TEST(AdamWOptimizer, shards_step_by_counts_as_the_whole_does) {
  const Bench bench;
  CountedParameters whole;
  const AdamWOptimizer optimizer(settings(LearningRateSchedule::constant), 14);
  optimizer.step(*bench.ops, whole.parameters, 1, 1, 10);
  const auto elements = static_cast<std::size_t>(whole.parameters.elements());
  const std::size_t inside_loads = whole.parameters.learned_elements() + 2;
  for (const ShardRange range : {ShardRange{0, inside_loads}, ShardRange{inside_loads, elements - inside_loads}}) {
    CountedParameters part;
    part.parameters.shard_optimizer_state(range);
    optimizer.step(*bench.ops, part.parameters, 1, 1, 10);
    EXPECT_TRUE(std::ranges::equal(part.parameters.values().subspan(range.first, range.count),
                                   whole.parameters.values().subspan(range.first, range.count)));
  }
}

}  // namespace
}  // namespace maestro::testing
