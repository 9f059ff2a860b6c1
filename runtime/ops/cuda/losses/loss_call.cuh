// SPDX-License-Identifier: Apache-2.0
// Translation of a loss's arguments into the call of its kernels. For kernel sources.
#pragma once

#include <cassert>

#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/losses/loss_rows.cuh"

namespace maestro::cuda {

template <class Z, class U>
LossCall<Z, U> loss_call(const LossRows& rows, const TeacherRows& teacher, const DistillationWeights& weights) {
  const Tensor& logits = rows.logits;
  LossCall<Z, U> call{};
  call.z = data_of<Z>(logits);
  call.u = data_of<U>(teacher.logits);
  call.values = data_of<float>(teacher.values);
  call.indices = data_of<std::int32_t>(teacher.indices);
  call.targets = rows.targets.data<std::int32_t>();
  call.ce = data_of<float>(rows.losses.ce);
  call.kl = data_of<float>(rows.losses.kl);
  call.teacher_ce = data_of<float>(rows.losses.teacher_ce);
  call.log_p = data_of<float>(teacher.sampled);
  call.log_mu = data_of<float>(teacher.drawn);
  call.policy = data_of<float>(rows.losses.policy);
  call.ratio = data_of<float>(rows.losses.ratio);
  call.z_stride = logits.columns();
  call.u_stride = teacher.logits.columns();
  call.k = teacher.indices.defined() ? static_cast<int>(teacher.indices.columns()) : 0;
  call.vocabulary = static_cast<int>(rows.vocabulary);
  call.rest = static_cast<int>(rows.rest);
  call.copy_columns = static_cast<int>(loss_copy_columns(rows.vocabulary));
  call.whole = call.vocabulary;
  call.divergence = weights.divergence;
  call.numbers.inverse_t = static_cast<float>(1 / weights.temperature);
  const bool policy = weights.divergence == Divergence::policy_gradient;
  const double power = policy ? 1 / weights.temperature : weights.temperature;
  call.numbers.weight = static_cast<float>(weights.alpha * power * rows.scale);
  call.numbers.weight_one = static_cast<float>((1 - weights.alpha) * rows.scale);
  call.numbers.at_target = call.numbers.weight_one;
  call.numbers.ratio_cap = static_cast<float>(weights.ratio_cap);
  call.numbers.beta = static_cast<float>(weights.beta);
  call.numbers.unit = weights.temperature == 1;
  call.numbers.mixing = weights.divergence == Divergence::js && weights.beta > 0 && weights.beta < 1;
  call.numbers.gradient = rows.gradient;
  call.numbers.softcap = static_cast<float>(rows.softcap);
  assert(call.k <= most_support);
  return call;
}

inline bool logits_fit(const Tensor& logits) {
  return !logits.defined() || packs_fit(logits, logits.columns(), flat_width);
}

template <LossForm Form>
struct FormOf {
  static constexpr LossForm value = Form;
};

/// Calls body(FormOf<...>(), LossCall<Z, U>). Without a teacher U is Z.
template <class Body>
void with_loss_call(const LossRows& rows, const TeacherRows& teacher, const DistillationWeights& weights, Body body) {
  with_type(rows.logits.dtype(), [&](auto student) {
    using Z = typename decltype(student)::type;
    if (teacher.indices.defined()) return body(FormOf<LossForm::top_k>(), loss_call<Z, Z>(rows, teacher, weights));
    if (teacher.sampled.defined()) return body(FormOf<LossForm::sampled>(), loss_call<Z, Z>(rows, teacher, weights));
    if (!teacher.logits.defined()) {
      return body(FormOf<LossForm::cross_entropy>(), loss_call<Z, Z>(rows, teacher, weights));
    }
    with_type(teacher.logits.dtype(), [&](auto other) {
      const auto call = loss_call<Z, typename decltype(other)::type>(rows, teacher, weights);
      switch (weights.divergence) {
        case Divergence::forward_kl:
          return body(FormOf<LossForm::forward_kl>(), call);
        case Divergence::reverse_kl:
          return body(FormOf<LossForm::reverse_kl>(), call);
        case Divergence::js:
          return body(FormOf<LossForm::js>(), call);
        case Divergence::policy_gradient:
          return body(FormOf<LossForm::policy_gradient>(), call);
      }
    });
  });
}

}  // namespace maestro::cuda
