// SPDX-License-Identifier: Apache-2.0
// Figures of the samples that generators made for a step. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/messages/messages.hpp"

namespace maestro {

inline constexpr std::size_t length_bins = 16;

/// Returns the figures of a step with made samples, by name: numbers of tokens (`generated_tokens`, `prompt_tokens`),
/// lengths of completions in tokens (`length_mean`, `length_p50`, `length_p95`, `length_max`), the share that a stop
/// token ended (`stop_share`), `version` and `staleness` in steps. For samples that were made in this run also
/// milliseconds (`rollout_ms`, `take_ms`), `tokens_per_s` of all replicas while they worked, and `slots_busy`, the
/// share of their slots with a sequence in that time.
[[nodiscard]] std::map<std::string, double> figures_of(const MadeSamples& made, StepId step);

/// Returns the number of completions by length: bin i counts lengths in (i w, (i + 1) w], where w is the limit of a
/// length over `length_bins`.
[[nodiscard]] std::vector<std::int64_t> length_histogram(const MadeSamples& made);

}  // namespace maestro
