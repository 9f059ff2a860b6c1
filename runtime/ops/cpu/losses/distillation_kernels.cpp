// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/distillation_kernels.hpp"

#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

constexpr float lowest = -3.402823466e38F;

/// Returns the lanes that hold elements; the others become `otherwise`.
MAESTRO_INLINE Vec keep(Whole, Vec value, float) {
  return value;
}
MAESTRO_INLINE Vec keep(Part part, Vec value, float otherwise) {
  return select(lane_numbers() < static_cast<std::int32_t>(part.count), value, broadcast(otherwise));
}

float segment_maximum(const float* values, std::int64_t count) {
  Vec top = broadcast(lowest);
  for_vectors(count,
              [&](std::int64_t at, auto lanes) { top = maximum(top, keep(lanes, lanes.load(values + at), lowest)); });
  return reduce_max(top);
}

/// `Unit`: the temperature is 1, so both sums are the same.
template <bool Unit>
SegmentSums scan_student(const SegmentScan& call) {
  Vec at_t{};
  Vec at_one{};
  for_vectors(call.segment.count, [&](std::int64_t at, auto lanes) {
    const Vec z = lanes.load(call.segment.z + at) - broadcast(call.z_max);
    at_t += keep(lanes, exp(z * broadcast(call.inverse_t)), 0);
    if constexpr (!Unit) at_one += keep(lanes, exp(z), 0);
  });
  SegmentSums sums;
  sums.z_t = reduce_sum(at_t);
  sums.z_one = Unit ? sums.z_t : reduce_sum(at_one);
  return sums;
}

template <bool Unit, CrossTerm Cross>
SegmentSums scan_both(const SegmentScan& call) {
  Vec z_t{};
  Vec z_one{};
  Vec u_t{};
  Vec u_one{};
  Vec cross{};
  for_vectors(call.segment.count, [&](std::int64_t at, auto lanes) {
    const Vec z = lanes.load(call.segment.z + at) - broadcast(call.z_max);
    const Vec u = lanes.load(call.segment.u + at) - broadcast(call.u_max);
    const Vec student = keep(lanes, exp(z * broadcast(call.inverse_t)), 0);
    const Vec teacher = keep(lanes, exp(u * broadcast(call.inverse_t)), 0);
    z_t += student;
    u_t += teacher;
    if constexpr (!Unit) z_one += keep(lanes, exp(z), 0);
    if constexpr (!Unit) u_one += keep(lanes, exp(u), 0);
    if constexpr (Cross == CrossTerm::teacher) cross += teacher * (u - z);
    if constexpr (Cross == CrossTerm::student) cross += student * (z - u);
  });
  SegmentSums sums;
  sums.z_t = reduce_sum(z_t);
  sums.u_t = reduce_sum(u_t);
  sums.z_one = Unit ? sums.z_t : reduce_sum(z_one);
  sums.u_one = Unit ? sums.u_t : reduce_sum(u_one);
  sums.cross = reduce_sum(cross);
  return sums;
}

template <bool Unit>
SegmentSums scan_at(const SegmentScan& call) {
  if (call.segment.u == nullptr) return scan_student<Unit>(call);
  switch (call.cross) {
    case CrossTerm::none:
      return scan_both<Unit, CrossTerm::none>(call);
    case CrossTerm::teacher:
      return scan_both<Unit, CrossTerm::teacher>(call);
    case CrossTerm::student:
      return scan_both<Unit, CrossTerm::student>(call);
  }
  return {};
}

SegmentSums scan_segment(const SegmentScan& call) {
  return call.inverse_t == 1.0F ? scan_at<true>(call) : scan_at<false>(call);
}

SegmentMixture mix_segment(const SegmentGradient& call) {
  Vec teacher{};
  Vec student{};
  for_vectors(call.segment.count, [&](std::int64_t at, auto lanes) {
    const Vec log_q = call.z.log_probability(lanes.load(call.segment.z + at), call.inverse_t);
    const Vec log_p = call.u.log_probability(lanes.load(call.segment.u + at), call.inverse_t);
    const Vec q = exp(log_q);
    const Vec p = exp(log_p);
    const Vec log_m = Divergences::log_mixture(p, q, call.beta);
    teacher += keep(lanes, p * (log_p - log_m), 0);
    student += keep(lanes, q * (log_q - log_m), 0);
  });
  return {reduce_sum(teacher), reduce_sum(student)};
}

/// `Unit`: q and q1 are the same.
template <GradientForm Form, bool Unit>
void differentiate(const SegmentGradient& call) {
  const bool with_one = call.weight_one != 0;
  for_vectors(call.segment.count, [&](std::int64_t at, auto lanes) {
    const Vec z = lanes.load(call.segment.z + at) - broadcast(call.z.max);
    const Vec log_q = z * broadcast(call.inverse_t) - broadcast(call.z.log_sum);
    const Vec q = exp(log_q);
    Vec dz = q * broadcast(call.weight);
    if constexpr (Form != GradientForm::student_only) {
      const Vec log_p = call.u.log_probability(lanes.load(call.segment.u + at), call.inverse_t);
      if constexpr (Form == GradientForm::forward_kl) dz -= exp(log_p) * broadcast(call.weight);
      if constexpr (Form == GradientForm::reverse_kl) dz *= log_q - log_p - broadcast(call.divergence);
      if constexpr (Form == GradientForm::js) {
        dz *= (log_q - Divergences::log_mixture(exp(log_p), q, call.beta) - broadcast(call.divergence)) *
              broadcast(1.0F - call.beta);
      }
    }
    if constexpr (Unit) {
      dz += q * broadcast(call.weight_one);
    } else if (with_one) {
      dz += exp(z - broadcast(call.z.log_sum_one)) * broadcast(call.weight_one);
    }
    lanes.store(call.dz + at, dz);
  });
}

template <bool Unit>
void differentiate_at(const SegmentGradient& call) {
  switch (call.form) {
    case GradientForm::student_only:
      return differentiate<GradientForm::student_only, Unit>(call);
    case GradientForm::forward_kl:
      return differentiate<GradientForm::forward_kl, Unit>(call);
    case GradientForm::reverse_kl:
      return differentiate<GradientForm::reverse_kl, Unit>(call);
    case GradientForm::js:
      return differentiate<GradientForm::js, Unit>(call);
  }
}

void differentiate_segment(const SegmentGradient& call) {
  const bool unit = call.inverse_t == 1.0F && call.z.log_sum == call.z.log_sum_one;
  return unit ? differentiate_at<true>(call) : differentiate_at<false>(call);
}

}  // namespace

const LossKernels loss_kernels = {segment_maximum, scan_segment, mix_segment, differentiate_segment};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
