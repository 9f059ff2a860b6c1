// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/losses/loss_parts.cuh"

#include "runtime/ops/cuda/launch_rows.cuh"
#include "runtime/ops/cuda/losses/loss_call.cuh"
#include "runtime/ops/cuda/losses/loss_parts.hpp"

namespace maestro::cuda {

namespace {

static_assert(part_sums(0) == record_floats);

PartRows rows_of(const PartSums& sums) {
  return {data_of<float>(sums.maxima), data_of<float>(sums.sums), data_of<float>(sums.mixtures),
          static_cast<int>(sums.sums.columns()), static_cast<int>(sums.maxima.columns())};
}

/// Calls body(FormOf<...>(), width flag, call) for a part with rows.
template <class Body>
void with_part_call(const LossPart& part, Body body) {
  if (part.rows.targets.elements() == 0) return;
  with_loss_call(part.rows, part.teacher, part.weights, [&](auto form, auto call) {
    call.first = static_cast<int>(part.first);
    call.whole = static_cast<int>(part.whole_vocabulary);
    with_flag(logits_fit(part.rows.logits) && logits_fit(part.teacher.logits),
              [&](auto packed) { body(form, packed, call); });
  });
}

template <class Z, class U>
LaunchShape shape_of(const Launch& at, const char* name, const LossPart& part, const LossCall<Z, U>& call) {
  const LossTiles tiles = loss_tiles(call.vocabulary, sizeof(Z), 1, call.k);
  return {name, static_cast<unsigned>(part.rows.targets.elements()), static_cast<unsigned>(tiles.threads), 0,
          at.stream};
}

template <class Packed>
inline constexpr int width_of = Packed::value ? flat_width : 1;

}  // namespace

bool has_mixture(const LossPart& part) {
  return part.teacher.logits.defined() && part.weights.divergence == Divergence::js && part.weights.beta > 0 &&
         part.weights.beta < 1;
}

void scan_part(const Launch& at, const LossPart& part, const PartSums& own) {
  with_part_call(part, [&]<class Z, class U>(auto form, auto packed, const LossCall<Z, U>& call) {
    launch(shape_of(at, "scan_part", part, call),
           scan_part_kernel<decltype(form)::value, width_of<decltype(packed)>, Z, U>, call, rows_of(own));
  });
}

void move_part(const Launch& at, const LossPart& part, const PartSums& own, const Tensor& maxima) {
  with_part_call(part, [&](auto form, auto, const auto& call) {
    launch_rows(at, "move_part", part.rows.targets.elements(), 1,
                MovedPartRows{rows_of(own), maxima.data<float>(), call.numbers.inverse_t, decltype(form)::value});
  });
}

void mix_part(const Launch& at, const LossPart& part, const PartSums& joint) {
  assert(has_mixture(part));
  with_part_call(part, [&]<class Z, class U>(auto form, auto packed, const LossCall<Z, U>& call) {
    if constexpr (decltype(form)::value == LossForm::js) {
      launch(shape_of(at, "mix_part", part, call), mix_part_kernel<width_of<decltype(packed)>, Z, U>, call,
             rows_of(joint));
    }
  });
}

void finish_part(const Launch& at, const LossPart& part, const PartSums& joint) {
  with_part_call(part, [&]<class Z, class U>(auto form, auto packed, const LossCall<Z, U>& call) {
    launch(shape_of(at, "finish_part", part, call),
           finish_part_kernel<decltype(form)::value, width_of<decltype(packed)>, Z, U>, call, rows_of(joint));
  });
}

}  // namespace maestro::cuda
