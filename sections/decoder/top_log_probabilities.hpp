// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens in logit rows: the likeliest and all others together, or a single one.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/tensor.hpp"

namespace maestro {

struct RowLogits {
  Tensor logits;            ///< (N, columns) f32; the logits of the k tokens are overwritten
  std::int64_t tokens = 0;  ///< number of first columns that the softmax covers
};

/// Replaces `values` (N, k) f32, the k largest logits of each row in descending order at columns `indices` (N, k) i32,
/// by their log-probabilities, and fills `rest` (N, 1) f32 with the log-probability of all other tokens: from their
/// sum, not from a difference to 1. Every result is in [least_log_probability, 0]. Host memory.
void top_log_probabilities(const RowLogits& rows, const Tensor& values, const Tensor& indices, const Tensor& rest);

/// Returns log softmax(logits / temperature)[token].
[[nodiscard]] float log_probability(std::span<const float> logits, std::int32_t token, double temperature);

}  // namespace maestro
