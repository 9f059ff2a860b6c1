// SPDX-License-Identifier: Apache-2.0
// The k tokens that a top-k teacher names, each held by a thread of the row's block. For kernel sources.
//
// p is the softmax of the k values / T and zero elsewhere; q spans the vocabulary. Tokens outside contribute
// q log(1 / (1 - beta)) to KL(q || m) in js; reverse_kl is infinite, since p is zero outside.
#pragma once

#include "runtime/ops/cuda/losses/loss_rows.cuh"

namespace maestro::cuda {

struct SupportToken {
  bool valid = false;
  std::int32_t column = 0;  // may be in another part of the vocabulary
  float p = 0;
  float log_p = 0;
  float z = 0;  // the student's logit

  /// Loads the i-th token into thread i; tokens outside the vocabulary are left out of the softmax. Called by all
  /// threads of the block, which has at least k.
  template <class Z, class U>
  __device__ static SupportToken of(const LossCall<Z, U>& call, std::int64_t row, const Z* z_row) {
    SupportToken token;
    const auto i = static_cast<int>(threadIdx.x);
    float value = -FLT_MAX;
    if (i < call.k) {
      const std::int32_t named = call.indices[row * call.k + i];
      token.valid = named >= 0 && named < call.whole;
      token.column = named - call.first;
    }
    if (token.valid) value = call.values[row * call.k + i];
    if (token.valid && token.column >= 0 && token.column < call.vocabulary) token.z = to_float(z_row[token.column]);
    const float max = block_max(value);
    const float scaled = (value - max) * call.numbers.inverse_t;
    const float sum = block_sum(token.valid ? element::exponential(scaled) : 0.0F);
    token.log_p = token.valid ? scaled - element::logarithm(sum) : 0.0F;
    token.p = token.valid ? element::exponential(token.log_p) : 0.0F;
    return token;
  }
};

struct SupportLoss {
  float divergence = 0;
  float weight = 0;      // weight of q in every column's gradient
  float correction = 0;  // what this thread's token adds to the gradient
};

__device__ inline SupportLoss js_of_support(const SupportToken& token, float log_q, const LossNumbers& numbers) {
  using element::Divergences;
  const float log_rest = log1pf(-numbers.beta);
  const float q = token.valid ? element::exponential(log_q) : 0.0F;
  const float log_m = Divergences::log_mixture(token.p, q, numbers.beta);
  const float teacher = block_sum(token.valid ? token.p * (token.log_p - log_m) : 0.0F);
  const float inside = block_sum(token.valid ? q * (log_q - log_m) : 0.0F);
  const float outside = 1.0F - block_sum(q);
  const float student = inside - element::larger(0.0F, outside) * log_rest;
  SupportLoss loss;
  loss.divergence = numbers.beta * teacher + (1.0F - numbers.beta) * student;
  loss.weight = numbers.weight * (1.0F - numbers.beta) * (-log_rest - student);
  loss.correction = numbers.weight * (1.0F - numbers.beta) * q * (log_q - log_m + log_rest);
  return loss;
}

/// Called by all threads of the block.
__device__ inline SupportLoss support_loss(const SupportToken& token, const element::Normaliser& of_z,
                                           Divergence divergence, const LossNumbers& numbers) {
  SupportLoss loss;
  const float log_q = of_z.log_probability(token.z, numbers.inverse_t);
  const bool any = block_max(token.valid ? 1 : 0) > 0;
  if (divergence == Divergence::js && !numbers.mixing) return loss;
  if (!any) {
    loss.divergence = loss.weight = __uint_as_float(0x7fc00000U);  // NaN
    return loss;
  }
  if (divergence == Divergence::js) return js_of_support(token, log_q, numbers);
  if (divergence == Divergence::reverse_kl) {
    loss.divergence = __uint_as_float(0x7f800000U);  // infinity
    return loss;
  }
  loss.divergence = block_sum(token.valid ? token.p * (token.log_p - log_q) : 0.0F);
  loss.weight = numbers.weight;
  loss.correction = -numbers.weight * token.p;
  return loss;
}

}  // namespace maestro::cuda
