// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/made_figures.hpp"

#include <algorithm>

#include "runtime/core/quantile.hpp"

namespace maestro {

std::map<std::string, double> figures_of(const MadeSamples& made, StepId step) {
  const std::vector<double> lengths(made.lengths.begin(), made.lengths.end());
  const auto samples = static_cast<double>(lengths.size());
  double tokens = 0;
  for (const double length : lengths) tokens += length;
  std::map<std::string, double> figures{
      {"generated_tokens", tokens},
      {"prompt_tokens", static_cast<double>(made.prompt_tokens)},
      {"length_mean", tokens / samples},
      {"length_p50", quantile_of(lengths, 0.5)},
      {"length_p95", quantile_of(lengths, 0.95)},
      {"length_max", *std::ranges::max_element(lengths)},
      {"stop_share", static_cast<double>(made.stopped) / samples},
      {"version", static_cast<double>(made.version.value())},
      {"staleness", static_cast<double>(step.value() - made.version.value())},
  };
  if (made.replicas == 0) return figures;
  figures["rollout_ms"] = made.rollout_ms;
  figures["take_ms"] = made.work.take_ms;
  if (made.work.busy_ms > 0) {
    figures["tokens_per_s"] = tokens * 1000 * static_cast<double>(made.replicas) / made.work.busy_ms;
    figures["slots_busy"] = made.work.slot_ms / made.work.busy_ms;
  }
  return figures;
}

std::vector<std::int64_t> length_histogram(const MadeSamples& made) {
  std::vector<std::int64_t> counts(length_bins);
  const std::int64_t most = std::max<std::int64_t>(made.most_tokens, 1);
  for (const std::int64_t length : made.lengths) {
    const std::int64_t bin = (std::max<std::int64_t>(length, 1) * std::ssize(counts) - 1) / most;
    ++counts[static_cast<std::size_t>(std::min(bin, std::ssize(counts) - 1))];
  }
  return counts;
}

}  // namespace maestro
