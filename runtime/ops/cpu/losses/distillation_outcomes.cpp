// SPDX-License-Identifier: Apache-2.0
// Row loss for a teacher that names k tokens and the probability of all others: k + 1 outcomes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/ops/cpu/losses/distillation_row.hpp"

namespace maestro::cpu {

namespace {

constexpr float left_out = std::numeric_limits<float>::lowest();

/// Calls `visit` with the outcome of each named token, then with the rest's outcome, if the student has a rest.
template <class LogQ, class Visit>
void for_outcomes(const RowState& row, const LogQ& log_q, const Visit& visit) {
  for (const SupportToken& token : row.support) visit(Outcome{token.log_p, log_q(double{token.z} - row.z_max)});
  if (std::isfinite(row.log_outside)) visit(Outcome{row.log_rest, log_q(row.log_outside)});
}

}  // namespace

void RowLoss::scan_outside(RowState& row, const Columns& columns, float* z) const {
  gather(row, columns);
  for (const SupportToken& token : row.support) {
    if (columns.holds(token.column)) z[token.column - columns.first] = left_out;
  }
  const float segment_max = kernels_->maximum(columns.segment.z, columns.segment.count);
  if (segment_max > left_out) {  // else every token of the segment is named
    move_maxima(row, std::max(row.z_max, segment_max), 0);
    row.z_one += kernels_->scan({columns.segment, row.z_max, 0, 1, CrossTerm::none}).z_t;
  }
  for (const SupportToken& token : row.support) {
    if (columns.holds(token.column)) z[token.column - columns.first] = token.z;
  }
}

void RowLoss::normalise_outcomes(RowState& row) const {
  const float outside_max = row.z_max;
  for (const SupportToken& token : row.support) row.z_max = std::max(row.z_max, token.z);
  row.log_outside =
      row.z_one > 0 ? double{outside_max} - row.z_max + std::log(row.z_one) : -std::numeric_limits<double>::infinity();
  row.z_one = std::exp(row.log_outside);
  for (const SupportToken& token : row.support) row.z_one += std::exp(double{token.z} - row.z_max);
  row.z_t = row.z_one;  // only the sum over the outcomes is needed at T
  // Each distribution over the outcomes, as powers 1 / T; log sums relative to the largest term.
  double p_max = -std::numeric_limits<double>::infinity();
  double q_max = p_max;
  const auto power = [this](double log_q) { return log_q / terms_.temperature; };
  for_outcomes(row, power, [&](const Outcome& at) {
    p_max = std::max(p_max, power(at.log_p));
    q_max = std::max(q_max, at.log_q);
  });
  double p_sum = 0;
  double q_sum = 0;
  for_outcomes(row, power, [&](const Outcome& at) {
    p_sum += std::exp(power(at.log_p) - p_max);
    q_sum += std::exp(at.log_q - q_max);
  });
  row.log_outcomes = q_max + std::log(q_sum);
  const double log_p_sum = p_max + std::log(p_sum);
  for (SupportToken& token : row.support) token.log_p = static_cast<float>(power(token.log_p) - log_p_sum);
  row.log_rest = power(row.log_rest) - log_p_sum;
}

double RowLoss::outcome_divergence(RowState& row) const {
  if (constant()) return 0;
  double teacher = 0;  // KL(p || q), or KL(p || m)
  double student = 0;  // KL(q || p), or KL(q || m)
  const bool mixed = terms_.divergence == Divergence::js;
  for_outcomes(
      row, [&](double above) { return log_outcome(row, above); },
      [&](const Outcome& at) {
        const double p = std::exp(at.log_p);
        const double q = std::exp(at.log_q);
        const double lm = mixed ? log_m(p, q) : 0;
        teacher += p * (at.log_p - (mixed ? lm : at.log_q));
        student += q * (at.log_q - (mixed ? lm : at.log_p));
      });
  row.student_divergence = student;
  if (mixed) return terms_.beta * teacher + (1 - terms_.beta) * student;
  return terms_.divergence == Divergence::forward_kl ? teacher : student;
}

double RowLoss::outcome_gradient(const RowState& row, const Outcome& at) const {
  const double p = std::exp(at.log_p);
  const double q = std::exp(at.log_q);
  switch (terms_.divergence) {
    case Divergence::forward_kl:
      return q - p;
    case Divergence::reverse_kl:
      return q * (at.log_q - at.log_p - row.student_divergence);
    case Divergence::js:
      return (1 - terms_.beta) * q * (at.log_q - log_m(p, q) - row.student_divergence);
    case Divergence::policy_gradient:  // refused by validate()
      break;
  }
  return 0;
}

void RowLoss::differentiate_outcomes(const RowState& row, const Columns& columns, float* dz) const {
  const double weight = terms_.alpha * terms_.temperature * terms_.scale;
  const double weight_one = (1 - terms_.alpha) * terms_.scale;
  SegmentGradient call;
  call.segment = {columns.segment.z, nullptr, columns.segment.count};
  call.dz = dz;
  call.z = row.z;
  call.weight_one = static_cast<float>(weight_one);
  if (std::isfinite(row.log_outside)) {  // a token outside has its share of the rest's gradient
    const double rest = outcome_gradient(row, {row.log_rest, log_outcome(row, row.log_outside)});
    call.weight = static_cast<float>(weight * rest);
    call.z.log_sum = static_cast<float>(row.log_outside);
  }
  kernels_->gradient(call);
  for (const SupportToken& token : row.support) {
    if (!columns.holds(token.column)) continue;
    const double above = double{token.z} - row.z_max;
    const double own = weight * outcome_gradient(row, {token.log_p, log_outcome(row, above)});
    dz[token.column - columns.first] = static_cast<float>(own + weight_one * std::exp(above - row.log_one));
  }
  if (columns.holds(row.target)) dz[row.target - columns.first] -= static_cast<float>(weight_one);
}

}  // namespace maestro::cpu
