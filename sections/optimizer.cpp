// SPDX-License-Identifier: Apache-2.0
#include "sections/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace maestro {

AdamWOptimizer::AdamWOptimizer(const OptimizerConfig& config, Span span) : config_(config), span_(span) {}

double AdamWOptimizer::learning_rate(std::int64_t number) const {
  const std::int64_t step = number - span_.begun;
  const std::int64_t warmup = config_.warmup_steps;
  if (step <= warmup) return config_.lr * static_cast<double>(step) / static_cast<double>(warmup);
  if (config_.schedule == LearningRateSchedule::constant) return config_.lr;
  const auto rest = static_cast<double>(std::max<std::int64_t>(span_.steps - warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step - 1 - warmup) / rest);
  if (config_.schedule == LearningRateSchedule::linear) return config_.lr + (config_.min_lr - config_.lr) * progress;
  return config_.min_lr + (config_.lr - config_.min_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double AdamWOptimizer::gradient_norm(const OperatorTable& ops, const Parameters& parameters) {
  return std::sqrt(ops.run(SumOfSquares{.values = parameters.gradients().first(parameters.learned_elements())}));
}

Result<double> AdamWOptimizer::clip_factor(double norm) const {
  if (!std::isfinite(norm)) {
    return Error{ErrorCode::invalid_argument, "the gradient norm is " + std::to_string(norm) +
                                                  "; training diverged: lower lr, lengthen warmup_steps or clip"};
  }
  if (config_.clip_norm <= 0 || norm <= config_.clip_norm) return 1.0;
  return config_.clip_norm / norm;
}

namespace {

/// Steps the kept elements of parameters by their counts.
void step_by_counts(const OperatorTable& ops, Parameters& parameters, std::int64_t tokens) {
  const ShardRange kept = parameters.kept_moments();
  for (const Parameter& parameter : parameters.all()) {
    const UpdateRule& rule = parameter.rule();
    const ShardRange own = parameters.range_of(parameter);
    const std::size_t first = std::max(own.first, kept.first);
    const std::size_t last = std::min(own.first + own.count, kept.first + kept.count);
    if (!rule.counts() || first >= last) continue;
    ops.run(StepCounts{.value = parameters.values().subspan(first, last - first),
                       .counts = parameters.gradients().subspan(first, last - first),
                       .mean = static_cast<double>(tokens * rule.per_token) / static_cast<double>(own.count),
                       .rate = rule.rate});
  }
}

/// Steps the rows of tables that have gradients.
void step_tables(Parameters& parameters, RowAdaGrad settings, Communicator* tensor_group) {
  for (const Parameter* table : parameters.row_tables()) {
    RowGradients& gradients = *table->row_gradients();
    settings.moment_scale = table->rule().rate;
    settings.columns = table->whole_shape().columns();
    std::vector<float> squares = row_squares(gradients, settings.clip_factor);
    if (tensor_group != nullptr && table->columns().count < settings.columns) tensor_group->all_reduce_sum(squares);
    step_rows(gradients, settings, squares, table->value(), table->row_sums());
    gradients.clear();
  }
}

}  // namespace

void AdamWOptimizer::step(const OperatorTable& ops, Parameters& parameters, std::int64_t number, double clip_factor,
                          std::int64_t tokens, Communicator* tensor_group) const {
  parameters.set_updates(parameters.updates() + 1);
  AdamWStep settings{learning_rate(number), config_.beta1,        config_.beta2, config_.epsilon,
                     config_.weight_decay,  parameters.updates(), clip_factor};
  const ShardRange kept = parameters.kept_moments();
  const std::span<bfloat16> rounded = parameters.rounded_values();
  const auto update = [&](std::size_t begin, std::size_t end) {
    const std::size_t first = std::max(begin, kept.first);
    const std::size_t last = std::min(end, kept.first + kept.count);
    if (first >= last) return;
    const std::size_t count = last - first;
    const auto moment = [&](const Tensor& of) {
      return of.flat_slice(static_cast<std::int64_t>(first - kept.first), static_cast<std::int64_t>(count));
    };
    const auto value = parameters.values().subspan(first, count);
    const auto gradient = parameters.gradients().subspan(first, count);
    ops.run(AdamW{.value = value,
                  .gradient = gradient,
                  .mean = moment(parameters.first_moments()),
                  .variance = moment(parameters.second_moments()),
                  .step = settings,
                  .rounded = rounded.empty() ? rounded : rounded.subspan(first, count)});
  };
  update(0, parameters.decayed_elements());
  settings.weight_decay = 0;
  update(parameters.decayed_elements(), parameters.learned_elements());
  step_by_counts(ops, parameters, tokens);
  step_tables(parameters, {.lr = settings.lr, .epsilon = config_.epsilon, .clip_factor = clip_factor}, tensor_group);
  parameters.values_changed();
  if (!parameters.optimizer_sharded()) parameters.rounded_along();
}

}  // namespace maestro
