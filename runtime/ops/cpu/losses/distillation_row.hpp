// SPDX-License-Identifier: Apache-2.0
// The losses of a row (token), scanned in segments of the vocabulary: pure arithmetic, no matrix products, no memory.
//
// Order of calls per row: begin, scan every segment, normalise, then (if needs_mixture()) mix every segment, then
// finish, then gradient of any segment. How a row is cut into segments changes only the grouping of f32 partial sums.
// Columns after the shared vocabulary are the rest: the cross-entropy's softmax includes them, p and q do not.
//
// Values: distillation_options.hpp. Derivatives with respect to z / T:
//   forward_kl  q - p                                      (Hinton et al. 2015, eq. 2)
//   reverse_kl  q (log q - log p - KL(q || p))
//   js          (1 - beta) q (log q - log m - KL(q || m))
// each times alpha T^2 scale / T, plus (1 - alpha) scale (softmax(z) - onehot(target)).
//
// Top-k teacher (boundary = top_k): p is the softmax of the k values / T and zero elsewhere; q spans the vocabulary.
//   forward_kl  sums over the k tokens. js: tokens outside contribute q log(1 / (1 - beta)) to KL(q || m).
//   reverse_kl  is infinite, since p is zero outside; validate() rejects it. teacher_ce cannot be computed and stays 0.
// Without any of the k tokens in the shared vocabulary the divergence and the gradient are NaN.
//
// Teacher of k + 1 outcomes (boundary = top_k_rest; distillation_outcomes.cpp): while scanning, the sums z_max and
// z_one leave the named tokens out, so that the student's rest is summed directly, not as a difference; normalise()
// adds the named tokens. G of distillation_options.hpp is, with p, q and m over the outcomes:
//   forward_kl  q - p
//   reverse_kl  q (log q - log p - KL(q || p))
//   js          (1 - beta) q (log q - log m - KL(q || m))
// Without a named token there is a single outcome, and the divergence is 0.
//
// A target that the student drew (policy_gradient) has only the target's log p and log q: with the constants A and w of
// distillation_options.hpp the derivative with respect to z / T is w A (q - onehot(target)), times alpha scale / T.
#pragma once

#include <span>

#include "runtime/ops/cpu/losses/distillation_kernels.hpp"
#include "runtime/ops/distillation_options.hpp"

namespace maestro::cpu {

struct LossTerms {
  enum class Teacher : std::uint8_t { none, dense, top_k, top_k_rest, sampled };
  Teacher teacher = Teacher::none;
  Divergence divergence = Divergence::forward_kl;
  double temperature = 1;
  double alpha = 0;  ///< weight of the divergence; 0 without a teacher
  double beta = 0.5;
  double scale = 1;
  double ratio_cap = 0;  ///< policy_gradient: largest ratio; 0: none
};

/// A token that the teacher named in its top k.
struct SupportToken {
  std::int32_t column = 0;
  float p = 0;
  float log_p = 0;
  float z = 0;  ///< the student's logit, gathered while scanning
};

/// An outcome of both distributions.
struct Outcome {
  double log_p = 0;
  double log_q = 0;
};

/// Accumulated state of a row; trivially copyable, so that a block of rows lives in scratch memory.
struct RowState {
  std::int32_t target = 0;
  float z_max = 0;
  float u_max = 0;
  float rest_max = 0;
  float z_target = 0;
  float u_target = 0;
  double rest_one = 0;  ///< sum of exp(z - rest_max) over the rest
  double z_t = 0;
  double z_one = 0;
  double u_t = 0;
  double u_one = 0;
  double cross = 0;
  double log_one = 0;  ///< log of the sum of exp(z - z_max) over all columns; valid after normalise()
  double mixture_teacher = 0;
  double mixture_student = 0;
  double divergence = 0;          ///< valid after finish()
  double student_divergence = 0;  ///< KL(q || p) or KL(q || m), for the gradient
  Normaliser z;
  Normaliser u;
  std::span<SupportToken> support;
  // Valid with top_k_rest only: log_rest after begin(), the others after normalise().
  double log_rest = 0;      ///< log p(rest)
  double log_outside = 0;   ///< log of the sum of exp(z - z_max) over the other tokens; -infinity: there are none
  double log_outcomes = 0;  ///< log of the sum of exp((z - z_max) / T) over the outcomes
  // For policy_gradient only.
  float log_p = 0;      ///< log p(target), set by the caller after begin() if the teacher is `sampled`
  float log_mu = 0;     ///< log mu(target), set by the caller after begin() if there is a ratio
  double weighted = 0;  ///< w A; valid after finish()
};

/// Immutable; thread-safe.
class RowLoss {
 public:
  RowLoss(const LossKernels& kernels, const LossTerms& terms);

  /// Columns [first, first + segment.count) of a row.
  struct Columns {
    RowSegment segment;
    std::int64_t first = 0;
    [[nodiscard]] bool holds(std::int32_t column) const { return column >= first && column < first + segment.count; }
  };

  [[nodiscard]] bool needs_mixture() const { return dense() && mixing_; }
  /// Starts a row. `support` (top_k and top_k_rest) has its columns set; values[i] is the teacher's logit, or
  /// log-probability, for support[i]; `rest` is the log-probability of all other tokens (top_k_rest).
  void begin(RowState& row, std::int32_t target, std::span<SupportToken> support, const float* values,
             float rest = 0) const;
  void scan(RowState& row, const Columns& columns) const;
  /// Scans like scan(), for top_k_rest. `z` is columns.segment.z: it holds other values during the call, and the same
  /// values after it.
  void scan_outside(RowState& row, const Columns& columns, float* z) const;
  /// Scans a segment of the rest; does not read its u.
  void scan_rest(RowState& row, const RowSegment& segment) const;
  /// Rescales the sums scanned so far to maxima at least as large, such as the maxima over all ranks' tokens.
  void move_maxima(RowState& row, float z_max, float u_max) const;
  static void move_rest(RowState& row, float rest_max);
  void normalise(RowState& row) const;
  void mix(RowState& row, const Columns& columns) const;
  /// Adds the row to all figures of `sums` but total, which is the caller's.
  void finish(RowState& row, LossSums& sums) const;
  /// Computes d(scale * total) / dz of the columns, overwriting dz, which may be columns.segment.z.
  void gradient(const RowState& row, const Columns& columns, float* dz) const;
  /// Computes the gradient for columns of the rest.
  void rest_gradient(const RowState& row, const RowSegment& segment, float* dz) const;

 private:
  [[nodiscard]] bool dense() const { return terms_.teacher == LossTerms::Teacher::dense; }
  [[nodiscard]] bool policy() const { return terms_.divergence == Divergence::policy_gradient; }
  void finish_policy(RowState& row, LossSums& sums) const;
  [[nodiscard]] bool outcomes() const { return terms_.teacher == LossTerms::Teacher::top_k_rest; }
  void gather(RowState& row, const Columns& columns) const;
  void normalise_outcomes(RowState& row) const;
  /// Returns the student's log-probability of an outcome whose logit is `above` the maximum.
  [[nodiscard]] double log_outcome(const RowState& row, double above) const {
    return above / terms_.temperature - row.log_outcomes;
  }
  [[nodiscard]] double outcome_divergence(RowState& row) const;
  /// Returns G of distillation_options.hpp.
  [[nodiscard]] double outcome_gradient(const RowState& row, const Outcome& outcome) const;
  void differentiate_outcomes(const RowState& row, const Columns& columns, float* dz) const;
  [[nodiscard]] CrossTerm cross_term() const;
  [[nodiscard]] double dense_divergence(RowState& row) const;
  [[nodiscard]] double support_divergence(RowState& row) const;
  [[nodiscard]] double log_q(const RowState& row, const SupportToken& token) const;
  [[nodiscard]] double log_m(double p, double q) const;
  [[nodiscard]] bool constant() const { return terms_.divergence == Divergence::js && !mixing_; }
  void correct_support(const RowState& row, const Columns& columns, float* dz) const;

  const LossKernels* kernels_;
  LossTerms terms_;
  float inverse_t_ = 1;
  bool mixing_ = false;  // js with 0 < beta < 1; at the ends js is zero
};

}  // namespace maestro::cpu
