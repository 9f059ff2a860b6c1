// SPDX-License-Identifier: Apache-2.0
// Arguments of the fused output-layer losses.
//
// Per target token t with student logits z (V), teacher logits u (V), temperature T, p = softmax(u / T),
// q = softmax(z / T):
//   forward_kl   KL(p || q)                                   (Hinton et al. 2015, including the teacher's entropy)
//   reverse_kl   KL(q || p)                                   (MiniLLM, Gu et al. 2024)
//   js           beta KL(p || m) + (1 - beta) KL(q || m), m = beta p + (1 - beta) q   (GKD, Agarwal et al. 2024)
//   ce           -log softmax(z)[target]                      (at temperature 1, over all of the student's columns)
//   total        alpha * T^2 * divergence + (1 - alpha) * ce
// For a target y that the student drew itself (policy_gradient):
//   A            log p(y) - log q(y), held constant: -A is a sample of KL(q || p), and the mean over y of the gradient
//                of -A log q(y) is that divergence's gradient (the estimator k1; Schulman 2020)
//   w            min(q(y) / mu(y), ratio_cap), held constant, mu being the distribution that y was drawn from; 1 if
//                ratio_cap is 0
//   total        alpha * (-w A log q(y)) + (1 - alpha) * ce
// With boundary = top_k_rest, p and q are over k + 1 outcomes: the k tokens i that the teacher names, with its
// log-probabilities l_i, and all other tokens together, with l_rest:
//   p = softmax(l / T), l = (l_1 .. l_k, l_rest)
//   q = softmax(s / T), s_i = log softmax(z)[i], s_rest = log of the sum of softmax(z) over all other tokens
// At T = 1 these are the probabilities themselves; at any T they are the powers p^(1/T) and q^(1/T) of the outcomes'
// probabilities, normalised. Every divergence is finite. If the k tokens are all tokens, the rest is empty and the
// formulas above hold for p and q. With G the derivative of the divergence with respect to s / T, the derivative with
// respect to z_j is G_j / T for a named token and G_rest / T softmax(z)_j / exp(s_rest) for any other, since G sums to
// 0.
//
// Sums run over rows whose target is >= 0. Gradients are of `scale * sum(total)`; scale is 1 / target tokens of the
// global batch, so that micro-batches and replicas add up.
#pragma once

#include <cstdint>

#include "runtime/core/tensor.hpp"

namespace maestro {

class PackedWeight;

enum class Divergence : std::uint8_t { forward_kl, reverse_kl, js, policy_gradient };

/// Sums over the target tokens of a call, f64.
struct LossSums {
  double ce = 0;
  double kl = 0;  ///< the chosen divergence, unweighted, without T^2; policy_gradient: -A
  double total = 0;
  double teacher_ce =
      0;  ///< -log softmax(u)[target] over the shared columns; 0 without a teacher's distribution over all tokens
  std::int64_t tokens = 0;
  double policy = 0;  ///< -w A log q(y) of policy_gradient
  double ratio = 0;   ///< w of policy_gradient with a ratio
  double capped = 0;  ///< tokens whose ratio was above ratio_cap
  LossSums& operator+=(const LossSums& more) {
    ce += more.ce;
    kl += more.kl;
    total += more.total;
    teacher_ce += more.teacher_ce;
    tokens += more.tokens;
    policy += more.policy;
    ratio += more.ratio;
    capped += more.capped;
    return *this;
  }
};

/// hidden (M, C) act times head (V, C), then softmax cross-entropy against targets (M) i32 (-1: ignored).
struct CrossEntropyHead {
  Tensor hidden;
  const PackedWeight* head = nullptr;           ///< packed for forward
  const PackedWeight* head_backward = nullptr;  ///< packed for backward_input; null: no gradients wanted
  std::int64_t vocabulary = 0;                  ///< V
  Tensor targets;
  double scale = 0;
  Tensor dhidden;      ///< (M, C) act, overwritten; undefined: no gradients wanted
  Tensor dhead;        ///< (V, C) f32, accumulated; undefined: head frozen or no gradients
  double softcap = 0;  ///< c: z = c tanh(hidden head^T / c) (Gemma 2, 2024, section 2); 0: none
};

/// Form of the teacher's output that crosses the boundary.
enum class TeacherOutput : std::uint8_t {
  hidden,  ///< teacher_hidden (M, Ct) act, turned to logits by the frozen teacher_head held in the student's section
  logits,  ///< teacher_logits (M, Vt) f32 or bf16
  top_k,   ///< teacher_values (M, k) f32 and teacher_indices (M, k) i32: p is the softmax over only these k
  top_k_rest,  ///< top_k with log-probabilities as values, and teacher_rest (M, 1) f32, the log-probability of all
               ///< other tokens
  sampled      ///< teacher_sampled (M, 1) f32: log p(target), for policy_gradient
};

/// Returns whether the teacher names k tokens per row.
[[nodiscard]] constexpr bool names_tokens(TeacherOutput boundary) {
  return boundary == TeacherOutput::top_k || boundary == TeacherOutput::top_k_rest;
}
/// Returns whether p is known for all tokens.
[[nodiscard]] constexpr bool is_dense(TeacherOutput boundary) {
  return boundary == TeacherOutput::hidden || boundary == TeacherOutput::logits;
}
/// The least log-probability of a top_k_rest teacher, also for a rest without probability: finite, so that every
/// divergence is finite, and below the smallest normal f32 number.
inline constexpr float least_log_probability = -100;

struct DistillationHead {
  CrossEntropyHead student;
  TeacherOutput boundary = TeacherOutput::hidden;
  Tensor teacher_hidden;
  const PackedWeight* teacher_head = nullptr;
  Tensor teacher_logits;
  Tensor teacher_values;
  Tensor teacher_indices;  ///< outside [0, shared_vocabulary): no token, left out
  Tensor teacher_rest;
  std::int64_t teacher_vocabulary = 0;  ///< Vt; at least shared_vocabulary if the boundary is hidden or logits
  std::int64_t shared_vocabulary = 0;   ///< columns at or above it are masked in p and q, but not in ce
  Divergence divergence = Divergence::forward_kl;
  double temperature = 1;
  double alpha = 0.5;
  double beta = 0.5;           ///< mixture weight of js
  double teacher_softcap = 0;  ///< soft cap of the logits that teacher_head gives; other teacher logits are complete
  Tensor teacher_sampled;
  Tensor sampled;        ///< (M, 1) f32: log mu(target); defined if ratio_cap is not 0
  double ratio_cap = 0;  ///< largest w of policy_gradient; 0: w is 1
};

}  // namespace maestro
