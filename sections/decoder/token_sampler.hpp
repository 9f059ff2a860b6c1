// SPDX-License-Identifier: Apache-2.0
// The choice of the next token from its logits. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/core/random.hpp"

namespace maestro {

/// Options in the order of their application, as transformers does.
struct SamplingOptions {
  double repetition_penalty = 1;  ///< factor for logits of tokens in the sequence: positive logits are divided by it,
                                  ///< others are multiplied (Keskar et al. 2019, section 4.1)
  double temperature = 0;         ///< 0: the token with the largest logit
  std::int64_t top_k = 0;         ///< only the tokens of the k largest logits; 0: all
  double top_p = 1;  ///< fewest, likeliest remaining tokens whose probabilities sum to at least this (nucleus sampling,
                     ///< Holtzman et al. 2020)
  std::uint64_t seed = 0;
  bool log_probabilities = false;  ///< also for temperature 0, where they cost a pass over the vocabulary
};

/// Equal seeds choose equal tokens from equal logits. Not thread-safe.
class TokenSampler {
 public:
  struct Choice {
    std::int32_t token = 0;
    /// Logarithm of the probability with which it was drawn: after penalty, temperature, top_k and top_p. For
    /// temperature 0 it is the model's (temperature 1), after the penalty; 0 without
    /// SamplingOptions::log_probabilities.
    double log_probability = 0;
  };
  /// Throws JobError for a penalty that is not positive, a negative temperature, top_k below 0 or top_p outside (0, 1].
  explicit TokenSampler(const SamplingOptions& options);
  /// Returns the token after `sequence`; of equal logits the lower ids are preferred. Ids of `sequence` that lack a
  /// logit are ignored. Throws JobError if a logit is not a number.
  [[nodiscard]] Choice choose(std::span<const float> logits, std::span<const std::int32_t> sequence = {});

 private:
  /// Drawing weight: exp((logit - the largest) / temperature).
  struct Candidate {
    double weight = 0;
    std::int32_t token = 0;
  };
  [[nodiscard]] std::span<const float> penalised(std::span<const float> logits, std::span<const std::int32_t> sequence);
  void collect(std::span<const float> logits, float largest);
  /// Keeps the likeliest candidates up to top_p of all weights.
  void keep_nucleus();

  SamplingOptions options_;
  Random random_;
  std::vector<float> penalised_;
  std::vector<Candidate> candidates_;
};

}  // namespace maestro
