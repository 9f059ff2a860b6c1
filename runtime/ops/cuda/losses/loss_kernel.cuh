// SPDX-License-Identifier: Apache-2.0
// The kernel of output-layer losses; its parts: loss_rows.cuh, loss_support.cuh. For kernel sources.
#pragma once

#include "runtime/ops/cuda/losses/loss_rows.cuh"
#include "runtime/ops/cuda/losses/loss_support.cuh"

namespace maestro::cuda {

/// A row of a call while its block processes it.
template <LossForm Form, int V, class Z, class U>
struct LossRow {
  static constexpr bool dense = has_dense_teacher(Form);
  static constexpr int in_flight = dense ? 2 : 4;  ///< packs per tensor that a thread loads at a time

  const LossCall<Z, U>& call;
  Z* z;
  const U* u;
  RowSource<V, Z> z_source;
  RowSource<V, U> u_source;
  std::int32_t target;  // a column; outside this part if another part has it
  bool ignored;

  /// `copies`: shared memory for z and then u, or null.
  __device__ LossRow(const LossCall<Z, U>& of, std::int64_t row, std::byte* copies)
      : call(of),
        z(of.z + row * of.z_stride),
        u(dense ? of.u + row * of.u_stride : nullptr),
        z_source{z, reinterpret_cast<Z*>(copies), of.vocabulary},
        u_source{u, nullptr, of.vocabulary},
        target(of.targets[row] - of.first),
        ignored(of.targets[row] < 0) {
    if (dense && copies != nullptr) {
      u_source.copy = reinterpret_cast<U*>(copies + static_cast<std::size_t>(of.copy_columns) * sizeof(Z));
    }
  }
  __device__ static int first() { return static_cast<int>(threadIdx.x) * V; }
  __device__ static int step() { return static_cast<int>(blockDim.x) * V; }

  /// Scans the row. This and all functions below are called by all threads of the block.
  __device__ RowScan scan(const TargetLogits& reference) const {
    return call.numbers.unit ? scan<true>(reference) : scan<false>(reference);
  }
  template <bool Unit>
  __device__ RowScan scan(const TargetLogits& reference) const {
    RowScan result;
    result.z0 = reference.z;
    result.u0 = reference.u;
    int column = first();
    for (; column + (in_flight - 1) * step() + V <= call.vocabulary; column += in_flight * step()) {
      scan_packs<Unit, in_flight>(column, result);
    }
    for (; column < call.vocabulary; column += step()) scan_packs<Unit, 1>(column, result);
    const float z_factor = result.z.join<Unit>(call.numbers);
    float u_factor = 1;
    if constexpr (dense) u_factor = result.u.join<Unit>(call.numbers);
    if constexpr (Form == LossForm::forward_kl) result.cross = block_sum(result.cross * u_factor);
    if constexpr (Form == LossForm::reverse_kl) result.cross = block_sum(result.cross * z_factor);
    if (call.rest > 0) result.rest = scan_rest();
    return result;
  }

  /// Issues all loads before their first use. A single pack may be the row's last, and is masked.
  template <bool Unit, int Packs>
  __device__ void scan_packs(int column, RowScan& result) const {
    typename RowSource<V, Z>::Loaded z_loaded[Packs];
    typename RowSource<V, U>::Loaded u_loaded[Packs];
    MAESTRO_UNROLL
    for (int pack = 0; pack < Packs; ++pack) {
      z_loaded[pack] = z_source.load(column + pack * step());
      if constexpr (dense) u_loaded[pack] = u_source.load(column + pack * step());
    }
    MAESTRO_UNROLL
    for (int pack = 0; pack < Packs; ++pack) {
      const int at = column + pack * step();
      float z_now[V];
      float u_now[V];
      z_source.keep(at, z_loaded[pack], z_now);
      if constexpr (dense) u_source.keep(at, u_loaded[pack], u_now);
      if constexpr (Packs == 1) {
        z_source.mask(at, z_now);
        if constexpr (dense) u_source.mask(at, u_now);
      }
      scan_pack<Form, Unit>(z_now, u_now, call.numbers, result);
    }
  }
  __device__ RunningSums scan_rest() const {
    const LossNumbers at_one;
    RunningSums sums;
    const int end = call.vocabulary + call.rest;
    for (int column = call.vocabulary + static_cast<int>(threadIdx.x); column < end;
         column += static_cast<int>(blockDim.x)) {
      const float z_now = to_float(z[column]);
      sums.raise<true>(z_now, at_one);
      sums.add<true>(z_now, at_one);
    }
    sums.join<true>(at_one);
    return sums;
  }

  __device__ RowMixture mixture(const element::Normaliser& of_z, const element::Normaliser& of_u) const {
    RowMixture sums;
    for (int column = first(); column < call.vocabulary; column += step()) {
      float z_now[V];
      float u_now[V];
      z_source.read_again(column, z_now);
      u_source.read_again(column, u_now);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) {
        if (column + i >= call.vocabulary) continue;
        const float log_q = of_z.log_probability(z_now[i], call.numbers.inverse_t);
        const float log_p = of_u.log_probability(u_now[i], call.numbers.inverse_t);
        const float q = element::exponential(log_q);
        const float p = element::exponential(log_p);
        const float log_m = element::Divergences::log_mixture(p, q, call.numbers.beta);
        sums.teacher += p * (log_p - log_m);
        sums.student += q * (log_q - log_m);
      }
    }
    sums.teacher = block_sum(sums.teacher);
    sums.student = block_sum(sums.student);
    return sums;
  }

  __device__ void write_gradient(const element::Normaliser& of_z, const element::Normaliser& of_u,
                                 const LossNumbers& numbers, float divergence) const {
    if (numbers.unit && numbers.softcap == 0) return write_gradient<true>(of_z, of_u, numbers, divergence);
    write_gradient<false>(of_z, of_u, numbers, divergence);
  }
  /// `Plain`: at temperature 1, and without a soft cap.
  template <bool Plain>
  __device__ void write_gradient(const element::Normaliser& of_z, const element::Normaliser& of_u,
                                 const LossNumbers& numbers, float divergence) const {
    for (int column = first(); column < call.z_stride; column += step()) {
      float z_now[V] = {};
      float u_now[V] = {};
      if (column < call.vocabulary) {
        z_source.read_again(column, z_now);
        if constexpr (has_divergence(Form)) u_source.read_again(column, u_now);
      }
      // Most accesses can skip the comparison of columns with the target and the vocabulary's end.
      if (Plain && column + V <= call.vocabulary && static_cast<unsigned>(target - column) >= V) {
        MAESTRO_UNROLL
        for (int i = 0; i < V; ++i) {
          z_now[i] = logit_gradient<Form, true>(z_now[i], u_now[i], of_z, of_u, numbers, divergence);
        }
      } else {
        change_logits<Plain>(column, z_now, u_now, of_z, of_u, numbers, divergence);
      }
      store_floats(z + column, z_now);
    }
  }
  template <bool Plain>
  __device__ void change_logits(int column, float (&z_now)[V], const float (&u_now)[V], const element::Normaliser& of_z,
                                const element::Normaliser& of_u, const LossNumbers& numbers, float divergence) const {
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) {
      float dz = logit_gradient<Form, Plain>(z_now[i], u_now[i], of_z, of_u, numbers, divergence);
      if (column + i == target) dz -= numbers.at_target;
      z_now[i] =
          column + i < call.vocabulary ? numbers.uncapped(dz, z_now[i]) : rest_gradient(column + i, of_z, numbers);
    }
  }
  __device__ float rest_gradient(int column, const element::Normaliser& of_z, const LossNumbers& numbers) const {
    if (column >= call.vocabulary + call.rest || numbers.weight_one == 0) return 0;
    const float z_now = to_float(z[column]);
    return numbers.uncapped(numbers.weight_one * of_z.probability_at_one(z_now), z_now);
  }
  __device__ void write_zeros() const {
    const float zeros[V] = {};
    for (int column = first(); column < call.z_stride; column += step()) store_floats(z + column, zeros);
  }

  __device__ void write(int column, float dz) const { z[column] = from_float<Z>(dz); }
  __device__ bool owns(std::int32_t column) const { return column >= 0 && column < call.vocabulary; }
  __device__ TargetLogits target_logits() const {
    TargetLogits logits;
    if (!owns(target)) return logits;
    logits.z = to_float(z[target]);
    if constexpr (dense) logits.u = to_float(u[target]);
    return logits;
  }
  __device__ void write_ignored(std::int64_t row) const {
    if (call.numbers.gradient) write_zeros();
    if (threadIdx.x != 0) return;
    call.ce[row] = 0;
    if (call.kl != nullptr) call.kl[row] = 0;
    if (call.teacher_ce != nullptr) call.teacher_ce[row] = 0;
    if (call.policy != nullptr) call.policy[row] = 0;
    if (call.ratio != nullptr) call.ratio[row] = 0;
  }
};

/// Divergence of a dense teacher, and the terms of its gradient.
struct DenseDivergence {
  float value = 0;
  float of_student = 0;  ///< KL(q || p) or KL(q || m)
};
template <LossForm Form>
__device__ __forceinline__ DenseDivergence dense_divergence(const RowScan& scan, const RowMixture& mixture,
                                                            const element::Normaliser& of_z,
                                                            const element::Normaliser& of_u,
                                                            const LossNumbers& numbers) {
  const float inverse_t = numbers.inverse_t;
  const float gap = ((scan.z.max - scan.z0) - (scan.u.max - scan.u0)) * inverse_t + (of_z.log_sum - of_u.log_sum);
  if constexpr (Form == LossForm::forward_kl) {
    return {scan.cross / scan.u.at_t * inverse_t + gap, 0};
  } else if constexpr (Form == LossForm::reverse_kl) {
    const float divergence = scan.cross / scan.z.at_t * inverse_t - gap;
    return {divergence, divergence};
  } else {
    if (!numbers.mixing) return {};
    return {numbers.beta * mixture.teacher + (1.0F - numbers.beta) * mixture.student, mixture.student};
  }
}

/// A target that the student drew: the factors of policy_gradient.
struct SampledTarget {
  float log_q = 0;
  float advantage = 0;  ///< A
  float ratio = 1;      ///< not capped
  float weighted = 0;   ///< w A
};
template <LossForm Form, class Call>
__device__ __forceinline__ SampledTarget sampled_target(const Call& call, std::int64_t row, const TargetLogits& target,
                                                        const element::Normaliser& of_z,
                                                        const element::Normaliser& of_u) {
  SampledTarget sampled;
  const float inverse_t = call.numbers.inverse_t;
  sampled.log_q = of_z.log_probability(target.z, inverse_t);
  float log_p = 0;
  if constexpr (has_dense_teacher(Form)) {
    log_p = of_u.log_probability(target.u, inverse_t);
  } else {
    log_p = call.log_p[row];
  }
  sampled.advantage = log_p - sampled.log_q;
  float weight = 1;
  if (call.numbers.ratio_cap > 0) {
    sampled.ratio = element::exponential(sampled.log_q - call.log_mu[row]);
    weight = sampled.ratio > call.numbers.ratio_cap ? call.numbers.ratio_cap : sampled.ratio;
  }
  sampled.weighted = weight * sampled.advantage;
  return sampled;
}

/// Computes a row's losses and gradient from its figures over the full vocabulary. If mixture is null, the row is read
/// for it.
template <LossForm Form, class Row>
__device__ __forceinline__ void finish_row(const Row& work, std::int64_t row, const RowScan& scan,
                                           const TargetLogits& target, const SupportToken& support,
                                           const RowMixture* mixture) {
  const auto& call = work.call;
  const element::Normaliser of_z = scan.student();
  element::Normaliser of_u;
  LossNumbers numbers = call.numbers;
  numbers.unit = numbers.unit && of_z.log_sum == of_z.log_sum_one;
  DenseDivergence dense;
  SupportLoss sparse;
  if constexpr (has_dense_teacher(Form)) {
    of_u = scan.u.normaliser();
    RowMixture sums;
    if (mixture != nullptr) sums = *mixture;
    if (Form == LossForm::js && numbers.mixing && mixture == nullptr) sums = work.mixture(of_z, of_u);
    if constexpr (has_divergence(Form)) dense = dense_divergence<Form>(scan, sums, of_z, of_u, numbers);
    if (Form == LossForm::js && !numbers.mixing) numbers.weight = 0;
  }
  if constexpr (Form == LossForm::top_k) {
    sparse = support_loss(support, of_z, call.divergence, numbers);
    numbers.weight = sparse.weight;
  }
  SampledTarget sampled;
  if constexpr (is_policy(Form)) {
    sampled = sampled_target<Form>(call, row, target, of_z, of_u);
    numbers.weight *= sampled.weighted;
    numbers.at_target += numbers.weight;
  }
  if (threadIdx.x == 0) {
    call.ce[row] = of_z.log_sum_one - (target.z - of_z.max);
    if constexpr (is_policy(Form)) {
      if (call.kl != nullptr) call.kl[row] = -sampled.advantage;
      if (call.policy != nullptr) call.policy[row] = -sampled.weighted * sampled.log_q;
      if (call.ratio != nullptr) call.ratio[row] = sampled.ratio;
    } else {
      if (call.kl != nullptr) call.kl[row] = not_negative(Form == LossForm::top_k ? sparse.divergence : dense.value);
    }
    if (call.teacher_ce != nullptr) {
      call.teacher_ce[row] = has_dense_teacher(Form) ? of_u.log_sum_one - (target.u - of_u.max) : 0.0F;
    }
  }
  if (!numbers.gradient) return;
  work.write_gradient(of_z, of_u, numbers, dense.of_student);
  if constexpr (Form == LossForm::top_k) {
    __syncthreads();
    if (!support.valid || !work.owns(support.column)) return;
    const float shared = numbers.unit ? logit_gradient<Form, true>(support.z, 0, of_z, of_u, numbers, 0)
                                      : logit_gradient<Form, false>(support.z, 0, of_z, of_u, numbers, 0);
    float dz = shared + sparse.correction;
    if (support.column == work.target) dz -= numbers.at_target;
    work.write(support.column, numbers.uncapped(dz, support.z));
  }
}

/// `Copied`: dynamic shared memory holds the row's z and u.
template <LossForm Form, int V, bool Copied, class Z, class U>
__global__ void __launch_bounds__(loss_most_threads) loss_kernel(LossCall<Z, U> call) {
  const std::int64_t row = blockIdx.x;
  const LossRow<Form, V, Z, U> work(call, row, Copied ? shared_memory<std::byte>() : nullptr);
  if (work.ignored) return work.write_ignored(row);
  const TargetLogits target = work.target_logits();
  SupportToken support;
  if constexpr (Form == LossForm::top_k) support = SupportToken::of(call, row, work.z);
  // The scan's barriers separate all reads of the target's and support's logits from the gradient.
  const RowScan scan = work.scan(target);
  finish_row<Form>(work, row, scan, target, support, nullptr);
}

}  // namespace maestro::cuda
