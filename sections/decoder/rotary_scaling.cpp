// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/rotary_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace maestro {

namespace {

using Kind = RotaryScaling::Kind;

/// Scales as Llama 3.1: wavelengths longer than original / low positions are divided by the factor, wavelengths shorter
/// than original / high are kept, and the others are interpolated.
double llama3_frequency(double frequency, const RotaryScaling& scaling) {
  const double turns = scaling.original * frequency / (2 * std::numbers::pi);
  if (turns < scaling.low) return frequency / scaling.factor;
  if (turns > scaling.high) return frequency;
  const double kept = (turns - scaling.low) / (scaling.high - scaling.low);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

/// Returns the pair of columns that turns `turns` times in the original positions (Peng et al. 2023, section 3.2).
double pair_of_turns(double turns, double columns, double theta, const RotaryScaling& scaling) {
  return columns * std::log(scaling.original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void scale_yarn(std::vector<double>& frequencies, double theta, const RotaryScaling& scaling) {
  const auto columns = static_cast<double>(2 * frequencies.size());
  double low = pair_of_turns(scaling.beta_fast, columns, theta, scaling);
  double high = pair_of_turns(scaling.beta_slow, columns, theta, scaling);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, columns - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= divided / scaling.factor + (1 - divided);
  }
}

/// Returns the axis of each of `pairs` pairs: one section after another, or interleaved: rows at 3 k + 1, columns at
/// 3 k + 2, for k below their sections, and time at all others.
std::vector<std::uint8_t> axes_of(const DecoderConfig& config, std::size_t pairs) {
  std::vector<std::uint8_t> axes;
  const std::vector<std::int64_t>& sections = config.rope_sections;
  constexpr std::int64_t count = 3;
  if (!config.rope_interleaved) {
    for (std::size_t axis = 0; axis < sections.size(); ++axis) {
      axes.insert(axes.end(), static_cast<std::size_t>(sections[axis]), static_cast<std::uint8_t>(axis));
    }
    return axes;
  }
  for (std::int64_t pair = 0; pair < static_cast<std::int64_t>(pairs); ++pair) {
    const std::int64_t axis = pair % count;
    const bool inside = pair < count * sections[static_cast<std::size_t>(axis)];
    axes.push_back(static_cast<std::uint8_t>(inside ? axis : 0));
  }
  return axes;
}

}  // namespace

RotaryFrequencies rotary_frequencies(const DecoderConfig& config, bool local) {
  const bool own = local && config.local_rope_theta > 0;
  const double theta = own ? config.local_rope_theta : config.rope_theta;
  const std::int64_t columns = config.rotated_columns();
  RotaryFrequencies found;
  for (std::int64_t i = 0; i < columns; i += 2) {
    found.inverse.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(columns)));
  }
  if (own) return found;
  if (!config.rope_sections.empty()) found.axis = axes_of(config, found.inverse.size());
  const RotaryScaling& scaling = config.rope_scaling;
  found.magnitude = scaling.magnitude;
  if (scaling.kind == Kind::yarn) scale_yarn(found.inverse, theta, scaling);
  for (std::size_t i = 0; i < found.inverse.size(); ++i) {
    double& frequency = found.inverse[i];
    if (scaling.kind == Kind::linear) frequency /= scaling.factor;
    if (scaling.kind == Kind::llama3) frequency = llama3_frequency(frequency, scaling);
    if (scaling.kind == Kind::longrope) frequency /= scaling.factors[i];
  }
  return found;
}

double score_scale(const DecoderConfig& config) {
  const RotaryScaling& scaling = config.rope_scaling;
  if (scaling.score_slope == 0) return config.attention_scale;
  const double growth = yarn_growth(scaling.factor, scaling.score_slope);
  return growth * growth / std::sqrt(static_cast<double>(config.head_size));
}

}  // namespace maestro
