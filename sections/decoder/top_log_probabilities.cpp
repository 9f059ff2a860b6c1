// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/top_log_probabilities.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "runtime/ops/distillation_options.hpp"

namespace maestro {

namespace {

float bounded(double log_probability) {
  return static_cast<float>(std::clamp(log_probability, double{least_log_probability}, 0.0));
}

/// Converts the `logits` of a row's tokens.
void convert(std::span<float> logits, std::span<float> values, std::span<const std::int32_t> indices, float& rest) {
  const float max = values.front();
  double named = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    named += std::exp(double{values[i]} - max);
    logits[static_cast<std::size_t>(indices[i])] = -std::numeric_limits<float>::infinity();
  }
  double others = 0;
  for (const float logit : logits) others += double{std::exp(logit - max)};
  const double log_sum = std::log(named + others);
  for (float& value : values) value = bounded(double{value} - max - log_sum);
  rest = bounded(std::log(others) - log_sum);  // without others: -infinity
}

}  // namespace

void top_log_probabilities(const RowLogits& rows, const Tensor& values, const Tensor& indices, const Tensor& rest) {
  const auto columns = static_cast<std::size_t>(rows.logits.columns());
  const auto k = static_cast<std::size_t>(values.columns());
  const std::span<float> logits = rows.logits.span<float>();
  for (std::size_t row = 0; row < static_cast<std::size_t>(values.rows()); ++row) {
    convert(logits.subspan(row * columns, static_cast<std::size_t>(rows.tokens)),
            values.span<float>().subspan(row * k, k), indices.span<std::int32_t>().subspan(row * k, k),
            rest.span<float>()[row]);
  }
}

float log_probability(std::span<const float> logits, std::int32_t token, double temperature) {
  const float max = std::ranges::max(logits);
  const auto scaled = [&](float logit) { return (double{logit} - max) / temperature; };
  double sum = 0;
  for (const float logit : logits) sum += double{std::exp(static_cast<float>(scaled(logit)))};
  return static_cast<float>(scaled(logits[static_cast<std::size_t>(token)]) - std::log(sum));
}

}  // namespace maestro
