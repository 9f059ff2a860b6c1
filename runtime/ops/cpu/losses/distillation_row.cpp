// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/distillation_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maestro::cpu {

namespace {

constexpr float unseen = std::numeric_limits<float>::lowest();
constexpr float impossible = -std::numeric_limits<float>::infinity();

/// Returns log(e^a + e^b).
double log_of_sum(double a, double b) {
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

}  // namespace

RowLoss::RowLoss(const LossKernels& kernels, const LossTerms& terms)
    : kernels_(&kernels), terms_(terms), inverse_t_(static_cast<float>(1 / terms.temperature)) {
  if (terms_.teacher == LossTerms::Teacher::none) terms_.alpha = 0;
  mixing_ = terms_.divergence == Divergence::js && terms_.beta > 0 && terms_.beta < 1;
}

void RowLoss::begin(RowState& row, std::int32_t target, std::span<SupportToken> support, const float* values,
                    float rest) const {
  row = RowState{};
  row.target = target;
  row.z_max = row.u_max = row.rest_max = unseen;
  row.z_target = row.u_target = impossible;
  row.support = support;
  row.log_rest = rest;
  if (outcomes()) {
    for (std::size_t i = 0; i < support.size(); ++i) support[i].log_p = values[i];
    return;
  }
  if (support.empty()) return;
  const float max = *std::max_element(values, values + support.size());
  double sum = 0;
  for (std::size_t i = 0; i < support.size(); ++i) sum += std::exp((double{values[i]} - max) / terms_.temperature);
  for (std::size_t i = 0; i < support.size(); ++i) {
    const double log_p = (double{values[i]} - max) / terms_.temperature - std::log(sum);
    support[i].log_p = static_cast<float>(log_p);
    support[i].p = static_cast<float>(std::exp(log_p));
  }
}

CrossTerm RowLoss::cross_term() const {
  if (dense() && terms_.divergence == Divergence::forward_kl) return CrossTerm::teacher;
  if (dense() && terms_.divergence == Divergence::reverse_kl) return CrossTerm::student;
  return CrossTerm::none;
}

void RowLoss::move_maxima(RowState& row, float z_max, float u_max) const {
  if (row.z_max != unseen) {
    const CrossTerm cross = cross_term();
    const double dz = double{row.z_max} - z_max;
    const double du = dense() ? double{row.u_max} - u_max : 0;
    const double z_factor = std::exp(dz / terms_.temperature);
    const double u_factor = std::exp(du / terms_.temperature);
    if (cross == CrossTerm::teacher) row.cross = u_factor * (row.cross + (du - dz) * row.u_t);
    if (cross == CrossTerm::student) row.cross = z_factor * (row.cross + (dz - du) * row.z_t);
    row.z_t *= z_factor;
    row.u_t *= u_factor;
    row.z_one *= std::exp(dz);
    row.u_one *= std::exp(du);
  }
  row.z_max = z_max;
  row.u_max = u_max;
}

void RowLoss::scan(RowState& row, const Columns& columns) const {
  const RowSegment& segment = columns.segment;
  const float z_max = std::max(row.z_max, kernels_->maximum(segment.z, segment.count));
  const float u_max = dense() ? std::max(row.u_max, kernels_->maximum(segment.u, segment.count)) : 0;
  move_maxima(row, z_max, u_max);
  const SegmentSums sums = kernels_->scan({segment, z_max, u_max, inverse_t_, cross_term()});
  row.z_t += sums.z_t;
  row.z_one += sums.z_one;
  row.u_t += sums.u_t;
  row.u_one += sums.u_one;
  row.cross += sums.cross;
  gather(row, columns);
}

void RowLoss::gather(RowState& row, const Columns& columns) const {
  const RowSegment& segment = columns.segment;
  if (columns.holds(row.target)) {
    row.z_target = segment.z[row.target - columns.first];
    if (dense()) row.u_target = segment.u[row.target - columns.first];
  }
  for (SupportToken& token : row.support) {
    if (columns.holds(token.column)) token.z = segment.z[token.column - columns.first];
  }
}

void RowLoss::move_rest(RowState& row, float rest_max) {
  if (row.rest_max != unseen) row.rest_one *= std::exp(double{row.rest_max} - rest_max);
  row.rest_max = rest_max;
}

void RowLoss::scan_rest(RowState& row, const RowSegment& segment) const {
  move_rest(row, std::max(row.rest_max, kernels_->maximum(segment.z, segment.count)));
  row.rest_one += kernels_->scan({{segment.z, nullptr, segment.count}, row.rest_max, 0, 1, CrossTerm::none}).z_t;
}

void RowLoss::normalise(RowState& row) const {
  if (outcomes()) normalise_outcomes(row);
  row.log_one = std::log(row.z_one);
  if (row.rest_one > 0)
    row.log_one = log_of_sum(row.log_one, double{row.rest_max} - row.z_max + std::log(row.rest_one));
  row.z = {row.z_max, static_cast<float>(std::log(row.z_t)), static_cast<float>(row.log_one)};
  if (dense()) row.u = {row.u_max, static_cast<float>(std::log(row.u_t)), static_cast<float>(std::log(row.u_one))};
}

void RowLoss::mix(RowState& row, const Columns& columns) const {
  SegmentGradient call;
  call.segment = columns.segment;
  call.z = row.z;
  call.u = row.u;
  call.inverse_t = inverse_t_;
  call.beta = static_cast<float>(terms_.beta);
  const SegmentMixture mixture = kernels_->mixture(call);
  row.mixture_teacher += mixture.teacher;
  row.mixture_student += mixture.student;
}

void RowLoss::finish(RowState& row, LossSums& sums) const {
  ++sums.tokens;
  sums.ce += row.log_one - (double{row.z_target} - row.z_max);
  if (terms_.teacher == LossTerms::Teacher::none) return;
  if (dense()) sums.teacher_ce += std::log(row.u_one) - (double{row.u_target} - row.u_max);
  if (policy()) return finish_policy(row, sums);
  const double divergence = dense()      ? dense_divergence(row)
                            : outcomes() ? outcome_divergence(row)
                                         : support_divergence(row);
  row.divergence = divergence < 0 ? 0 : divergence;  // rounding may make a divergence negative; keeps NaN
  sums.kl += row.divergence;
}

void RowLoss::finish_policy(RowState& row, LossSums& sums) const {
  const double log_q = (double{row.z_target} - row.z_max) / terms_.temperature - std::log(row.z_t);
  const double log_p =
      dense() ? (double{row.u_target} - row.u_max) / terms_.temperature - std::log(row.u_t) : double{row.log_p};
  double ratio = 1;
  if (terms_.ratio_cap > 0) {
    ratio = std::exp(log_q - row.log_mu);
    if (ratio > terms_.ratio_cap) {
      ratio = terms_.ratio_cap;
      ++sums.capped;
    }
    sums.ratio += ratio;
  }
  row.weighted = ratio * (log_p - log_q);
  sums.kl += log_q - log_p;
  sums.policy -= row.weighted * log_q;
}

double RowLoss::dense_divergence(RowState& row) const {
  const double gap = std::log(row.z_t) - std::log(row.u_t);
  switch (terms_.divergence) {
    case Divergence::forward_kl:
      return row.cross / (row.u_t * terms_.temperature) + gap;
    case Divergence::reverse_kl:
      row.student_divergence = row.cross / (row.z_t * terms_.temperature) - gap;
      return row.student_divergence;
    case Divergence::js:
      row.student_divergence = row.mixture_student;
      return mixing_ ? terms_.beta * row.mixture_teacher + (1 - terms_.beta) * row.mixture_student : 0;
    case Divergence::policy_gradient:  // finish_policy()
      break;
  }
  return 0;
}

double RowLoss::log_q(const RowState& row, const SupportToken& token) const {
  return (double{token.z} - row.z_max) / terms_.temperature - std::log(row.z_t);
}

double RowLoss::log_m(double p, double q) const {
  return std::log(std::max(terms_.beta * p + (1 - terms_.beta) * q, std::numeric_limits<double>::min()));
}

double RowLoss::support_divergence(RowState& row) const {
  if (constant()) return 0;
  if (row.support.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (terms_.divergence == Divergence::reverse_kl) return std::numeric_limits<double>::infinity();
  double forward = 0;
  double teacher = 0;
  double student = 0;
  double outside = 1;  // the student's probability outside the teacher's k tokens
  for (const SupportToken& token : row.support) {
    const double lq = log_q(row, token);
    const double q = std::exp(lq);
    const double lm = log_m(token.p, q);
    forward += token.p * (token.log_p - lq);
    teacher += token.p * (token.log_p - lm);
    student += q * (lq - lm);
    outside -= q;
  }
  if (terms_.divergence == Divergence::forward_kl) return forward;
  row.student_divergence = student - std::max(0.0, outside) * std::log1p(-terms_.beta);
  return terms_.beta * teacher + (1 - terms_.beta) * row.student_divergence;
}

void RowLoss::gradient(const RowState& row, const Columns& columns, float* dz) const {
  SegmentGradient call;
  call.segment = columns.segment;
  call.dz = dz;
  call.z = row.z;
  call.u = row.u;
  call.inverse_t = inverse_t_;
  call.weight = static_cast<float>(terms_.alpha * terms_.temperature * terms_.scale);
  call.weight_one = static_cast<float>((1 - terms_.alpha) * terms_.scale);
  call.divergence = static_cast<float>(row.student_divergence);
  call.beta = static_cast<float>(terms_.beta);
  double at_target = (1 - terms_.alpha) * terms_.scale;
  const bool nothing = constant();
  if (outcomes() && !nothing) return differentiate_outcomes(row, columns, dz);
  if (policy()) {
    const double weight = terms_.alpha * terms_.scale / terms_.temperature * row.weighted;
    call.weight = static_cast<float>(weight);
    at_target += weight;
  } else if (dense() && !nothing) {
    call.form = terms_.divergence == Divergence::forward_kl   ? GradientForm::forward_kl
                : terms_.divergence == Divergence::reverse_kl ? GradientForm::reverse_kl
                                                              : GradientForm::js;
  } else if (terms_.teacher == LossTerms::Teacher::none || nothing || terms_.divergence == Divergence::reverse_kl) {
    call.weight = 0;
  } else if (row.support.empty()) {
    call.weight = std::numeric_limits<float>::quiet_NaN();
  } else if (terms_.divergence == Divergence::js) {
    const double outside = -std::log1p(-terms_.beta) - row.student_divergence;
    call.weight = static_cast<float>(call.weight * (1 - terms_.beta) * outside);
  }
  kernels_->gradient(call);
  if (!row.support.empty() && call.weight != 0) correct_support(row, columns, dz);
  if (columns.holds(row.target)) dz[row.target - columns.first] -= static_cast<float>(at_target);
}

void RowLoss::rest_gradient(const RowState& row, const RowSegment& segment, float* dz) const {
  SegmentGradient call;
  call.segment = {segment.z, nullptr, segment.count};
  call.dz = dz;
  call.z = {row.z.max, row.z.log_sum_one, row.z.log_sum_one};
  call.weight_one = static_cast<float>((1 - terms_.alpha) * terms_.scale);
  kernels_->gradient(call);
}

void RowLoss::correct_support(const RowState& row, const Columns& columns, float* dz) const {
  const double weight = terms_.alpha * terms_.temperature * terms_.scale;
  for (const SupportToken& token : row.support) {
    if (!columns.holds(token.column)) continue;
    float& at = dz[token.column - columns.first];
    if (terms_.divergence == Divergence::forward_kl) {
      at -= static_cast<float>(weight * token.p);
      continue;
    }
    const double lq = log_q(row, token);
    const double q = std::exp(lq);
    const double inside = lq - log_m(token.p, q) + std::log1p(-terms_.beta);
    at += static_cast<float>(weight * (1 - terms_.beta) * q * inside);
  }
}

}  // namespace maestro::cpu
