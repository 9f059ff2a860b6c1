// SPDX-License-Identifier: Apache-2.0
// Output-layer losses on rows of logits, in place: a block per row. For kernel sources.
//
// Formulas and their derivatives: distillation_options.hpp, element_math.hpp. A row is read once while running maxima
// and sums of exponentials are kept (Milakov & Gimelshein 2018), with a copy in shared memory if it fits, and is then
// overwritten by its gradient; js has another pass in between.
//
// Cross terms yield divergences without another pass: forward sum e_t(u) ((u - u0) - (z - z0)), reverse sum
// e_t(z) ((z - z0) - (u - u0)), e_t(x) = exp((x - max) / T); z0 and u0 are the target's logits, so that logits far from
// zero lose no digits.
#pragma once

#include <cfloat>

#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/distillation_options.hpp"
#include "runtime/ops/element_math.hpp"

namespace maestro::cuda {

enum class LossForm : std::uint8_t { cross_entropy, forward_kl, reverse_kl, js, top_k, policy_gradient, sampled };

[[nodiscard]] constexpr bool has_divergence(LossForm form) {
  return form == LossForm::forward_kl || form == LossForm::reverse_kl || form == LossForm::js;
}
/// Returns whether the teacher has logits.
[[nodiscard]] constexpr bool has_dense_teacher(LossForm form) {
  return has_divergence(form) || form == LossForm::policy_gradient;
}
/// Returns whether the form is policy_gradient, with any teacher.
[[nodiscard]] constexpr bool is_policy(LossForm form) {
  return form == LossForm::policy_gradient || form == LossForm::sampled;
}

/// Numbers in a call.
struct LossNumbers {
  float inverse_t = 1;
  float weight = 0;      ///< weight of the divergence: alpha T scale; of policy_gradient: alpha scale / T
  float weight_one = 0;  ///< weight of the cross-entropy: (1 - alpha) scale
  float beta = 0.5F;
  bool unit = true;       ///< T is 1, and both softmaxes of the student are the same
  bool mixing = false;    ///< js with 0 < beta < 1; at the ends js is zero
  bool gradient = false;  ///< z is overwritten
  float softcap = 0;      ///< soft cap of z; 0: none
  float at_target = 0;    ///< subtracted from the gradient at the target
  float ratio_cap = 0;    ///< policy_gradient; 0: no ratio

  /// Returns the gradient before the soft cap, from the gradient of the capped logit z.
  __device__ float uncapped(float dz, float z) const {
    return softcap == 0 ? dz : dz * element::Softcap::slope_of(z, softcap);
  }
};

template <class Z, class U>
struct LossCall {
  Z* z;                         // (R, z_stride)
  const U* u;                   // (R, u_stride), of a dense teacher
  const float* values;          // (R, k), of a top-k teacher
  const std::int32_t* indices;  // (R, k)
  const std::int32_t* targets;  // (R)
  float* ce;                    // (R)
  float* kl;                    // (R) or null
  float* teacher_ce;            // (R) or null
  const float* log_p;           // (R), of a sampled teacher
  const float* log_mu;          // (R), for policy_gradient with a ratio
  float* policy;                // (R), for policy_gradient
  float* ratio;                 // (R), for policy_gradient
  std::int64_t z_stride;
  std::int64_t u_stride;
  int k;
  int vocabulary;         // columns that both the divergence and the cross-entropy use
  int rest;               // columns after `vocabulary`, only for the cross-entropy; later columns of z get gradient 0
  int copy_columns;       // loss_copy_columns(vocabulary)
  int first;              // token of column 0; 0 unless the vocabulary is cut
  int whole;              // tokens of the softmax in all vocabulary parts
  Divergence divergence;  // of a top-k teacher
  LossNumbers numbers;
};

/// A running maximum and the sums of exponentials below it.
struct RunningSums {
  float max = -FLT_MAX;
  float at_t = 0;
  float at_one = 0;  ///< sum at temperature 1; with Unit it is at_t, once joined

  /// Raises the maximum to `to`, if larger. Returns the factor applied to at_t. `Unit`: LossNumbers::unit, at compile
  /// time, since loops over a row are bound by their instructions.
  template <bool Unit>
  __device__ float raise(float to, const LossNumbers& numbers) {
    if (to <= max) return 1.0F;
    const float factor = exponential<Unit>(max - to, numbers);
    at_t *= factor;
    if constexpr (!Unit) at_one *= element::exponential(max - to);
    max = to;
    return factor;
  }
  /// Adds x without a new maximum. Returns its exponential at T.
  template <bool Unit>
  __device__ float add(float x, const LossNumbers& numbers) {
    const float e = exponential<Unit>(x - max, numbers);
    at_t += e;
    if constexpr (!Unit) at_one += element::exponential(x - max);
    return e;
  }
  /// Combines the sums of all threads in the block. Returns the factor applied to this thread's at_t.
  template <bool Unit>
  __device__ float join(const LossNumbers& numbers) {
    const float factor = raise<Unit>(block_max(max), numbers);
    at_t = block_sum(at_t);
    at_one = Unit ? at_t : block_sum(at_one);
    return factor;
  }
  __device__ element::Normaliser normaliser() const {
    return {max, element::logarithm(at_t), element::logarithm(at_one)};
  }

 private:
  template <bool Unit>
  __device__ static float exponential(float below_max, const LossNumbers& numbers) {
    return element::exponential(Unit ? below_max : below_max * numbers.inverse_t);
  }
};

/// Results of a row's scan.
struct RowScan {
  RunningSums z;
  RunningSums u;
  float cross = 0;
  float z0 = 0;  ///< reference that cross subtracts from logits
  float u0 = 0;
  RunningSums rest;  ///< sums at temperature 1 over the columns that only the cross-entropy uses; empty without any

  /// Returns the normaliser of z: log_sum is over the vocabulary, log_sum_one includes the rest.
  __device__ element::Normaliser student() const {
    element::Normaliser of_z = z.normaliser();
    if (rest.at_one == 0) return of_z;
    const float other = rest.max - z.max + element::logarithm(rest.at_one);
    const float larger = element::larger(of_z.log_sum_one, other);
    of_z.log_sum_one = larger + log1pf(element::exponential(-fabsf(of_z.log_sum_one - other)));
    return of_z;
  }
};
struct TargetLogits {
  float z = 0;
  float u = 0;
};
/// The two terms of js.
struct RowMixture {
  float teacher = 0;  ///< KL(p || m)
  float student = 0;  ///< KL(q || m)
};

template <LossForm Form, bool Unit, int V>
__device__ __forceinline__ void scan_pack(const float (&z)[V], const float (&u)[V], const LossNumbers& numbers,
                                          RowScan& scan) {
  float z_max = z[0];
  float u_max = u[0];
  MAESTRO_UNROLL
  for (int i = 1; i < V; ++i) {
    z_max = fmaxf(z_max, z[i]);  // drops NaN, which the sums keep
    if constexpr (has_dense_teacher(Form)) u_max = fmaxf(u_max, u[i]);
  }
  const float z_factor = scan.z.raise<Unit>(z_max, numbers);
  if constexpr (Form == LossForm::reverse_kl) scan.cross *= z_factor;
  if constexpr (has_dense_teacher(Form)) {
    const float u_factor = scan.u.raise<Unit>(u_max, numbers);
    if constexpr (Form == LossForm::forward_kl) scan.cross *= u_factor;
  }
  MAESTRO_UNROLL
  for (int i = 0; i < V; ++i) {
    const float of_z = scan.z.add<Unit>(z[i], numbers);
    if constexpr (has_dense_teacher(Form)) {
      const float of_u = scan.u.add<Unit>(u[i], numbers);
      const float gap = (u[i] - scan.u0) - (z[i] - scan.z0);
      // A column outside the softmax has exponentials 0, and its gap may be NaN.
      if constexpr (Form == LossForm::forward_kl) scan.cross += of_u > 0 ? of_u * gap : 0.0F;
      if constexpr (Form == LossForm::reverse_kl) scan.cross -= of_z > 0 ? of_z * gap : 0.0F;
    }
  }
}

/// A row's elements, V at a time: read from memory first, with a copy into shared memory (`copy`, or null), then from
/// there.
template <int V, class T>
struct RowSource {
  const T* row;
  T* copy;
  int vocabulary;

  static constexpr int width = access_width<T, V>;
  struct Loaded {
    Pack<T, width> parts[V / width];
  };
  __device__ Loaded load(int column) const {
    Loaded loaded;
    MAESTRO_UNROLL
    for (int part = 0; part < V / width; ++part) {
      loaded.parts[part] = load_pack<T, width>(row + column + part * width);
    }
    return loaded;
  }
  /// Copies the loaded elements, if there is a copy, and converts them.
  __device__ void keep(int column, const Loaded& loaded, float (&to)[V]) const {
    MAESTRO_UNROLL
    for (int part = 0; part < V / width; ++part) {
      const Pack<T, width>& pack = loaded.parts[part];
      if (copy != nullptr) store_pack<T, width>(copy + column + part * width, pack);
      MAESTRO_UNROLL
      for (int i = 0; i < width; ++i) to[part * width + i] = to_float(pack.values[i]);
    }
  }
  __device__ void read_again(int column, float (&to)[V]) const {
    load_floats((copy != nullptr ? copy : row) + column, to);
    mask(column, to);
  }
  __device__ void mask(int column, float (&to)[V]) const {
    if (column + V <= vocabulary) return;
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) to[i] = column + i < vocabulary ? to[i] : -FLT_MAX;
  }
};

/// Returns the derivative with respect to a student's logit, without the target's share. `Unit`: numbers.unit.
template <LossForm Form, bool Unit>
__device__ __forceinline__ float logit_gradient(float z, float u, const element::Normaliser& of_z,
                                                const element::Normaliser& of_u, const LossNumbers& numbers,
                                                float divergence) {
  const float inverse_t = Unit ? 1.0F : numbers.inverse_t;
  const float log_q = of_z.log_probability(z, inverse_t);
  const float q = element::exponential(log_q);
  float dz = 0;
  if constexpr (has_divergence(Form)) {
    const float log_p = of_u.log_probability(u, inverse_t);
    if constexpr (Form == LossForm::forward_kl) dz = element::Divergences::forward_kl(log_p, log_q);
    if constexpr (Form == LossForm::reverse_kl) dz = element::Divergences::reverse_kl(log_p, log_q, divergence);
    if constexpr (Form == LossForm::js) dz = element::Divergences::js(log_p, log_q, numbers.beta, divergence);
    dz *= numbers.weight;
  } else {
    if constexpr (Unit) return (numbers.weight + numbers.weight_one) * q;
    dz = numbers.weight * q;
  }
  if constexpr (Unit) return dz + numbers.weight_one * q;
  return numbers.weight_one == 0 ? dz : dz + numbers.weight_one * of_z.probability_at_one(z);
}

/// Returns a divergence that rounding has not made negative; keeps NaN.
__device__ __forceinline__ float not_negative(float divergence) {
  return divergence < 0 ? 0.0F : divergence;
}

}  // namespace maestro::cuda
