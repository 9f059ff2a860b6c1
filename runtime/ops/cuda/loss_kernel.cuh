// The kernel of output-layer losses; its parts: loss_rows.cuh, loss_support.cuh. For kernel sources.
#pragma once

#include "runtime/ops/cuda/loss_rows.cuh"
#include "runtime/ops/cuda/loss_support.cuh"

namespace maestro::cuda {

/// One row of a call while its block works on it.
template <LossForm Form, int V, class Z, class U>
struct LossRow {
  static constexpr bool dense = has_dense_teacher(Form);

  const LossCall<Z, U>& call;
  Z* z;
  const U* u;
  RowSource<V, Z> z_source;
  RowSource<V, U> u_source;
  std::int32_t target;

  /// `copies`: shared memory for z and then u, or null.
  __device__ LossRow(const LossCall<Z, U>& of, std::int64_t row, std::byte* copies)
      : call(of),
        z(of.z + row * of.z_stride),
        u(dense ? of.u + row * of.u_stride : nullptr),
        z_source{z, reinterpret_cast<Z*>(copies), of.vocabulary},
        u_source{u, nullptr, of.vocabulary},
        target(of.targets[row]) {
    if (dense && copies != nullptr) {
      const int columns = (of.vocabulary + V - 1) / V * V;
      u_source.copy = reinterpret_cast<U*>(copies + static_cast<std::size_t>(columns) * sizeof(Z));
    }
  }
  __device__ static int first() { return static_cast<int>(threadIdx.x) * V; }
  __device__ static int step() { return static_cast<int>(blockDim.x) * V; }

  __device__ RowScan scan(float z0, float u0) const {
    RowScan result;
    for (int column = first(); column < call.vocabulary; column += 2 * step()) {
      const bool second = column + step() < call.vocabulary;
      float z_now[2][V];
      float u_now[2][V];
      z_source.first_read(column, z_now[0]);
      if (second) z_source.first_read(column + step(), z_now[1]);
      if constexpr (dense) u_source.first_read(column, u_now[0]);
      if constexpr (dense) {
        if (second) u_source.first_read(column + step(), u_now[1]);
      }
      scan_pack<Form>(z_now[0], u_now[0], z0, u0, call.numbers, result);
      if (second) scan_pack<Form>(z_now[1], u_now[1], z0, u0, call.numbers, result);
    }
    const float z_factor = result.z.join(call.numbers);
    float u_factor = 1;
    if constexpr (dense) u_factor = result.u.join(call.numbers);
    if constexpr (Form == LossForm::forward_kl) result.cross = block_sum(result.cross * u_factor);
    if constexpr (Form == LossForm::reverse_kl) result.cross = block_sum(result.cross * z_factor);
    return result;
  }

  struct Mixture {
    float teacher = 0;  // KL(p || m)
    float student = 0;  // KL(q || m)
  };
  __device__ Mixture mixture(const element::Normaliser& of_z, const element::Normaliser& of_u) const {
    Mixture sums;
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
    for (int column = first(); column < call.z_stride; column += step()) {
      float z_now[V] = {};
      float u_now[V] = {};
      if (column < call.vocabulary) {
        z_source.read_again(column, z_now);
        if constexpr (dense) u_source.read_again(column, u_now);
      }
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) {
        float dz = logit_gradient<Form>(z_now[i], u_now[i], of_z, of_u, numbers, divergence);
        if (column + i == target) dz -= numbers.weight_one;
        z_now[i] = column + i < call.vocabulary ? dz : 0.0F;
      }
      store_floats(z + column, z_now);
    }
  }
  __device__ void write_zeros() const {
    const float zeros[V] = {};
    for (int column = first(); column < call.z_stride; column += step()) store_floats(z + column, zeros);
  }

  /// The divergence of a dense teacher, and in `of_student` what its gradient needs.
  __device__ float dense_divergence(const RowScan& scan, float z0, float u0, const element::Normaliser& of_z,
                                    const element::Normaliser& of_u, float& of_student) const {
    const float inverse_t = call.numbers.inverse_t;
    const float gap = ((scan.z.max - z0) - (scan.u.max - u0)) * inverse_t + (of_z.log_sum - of_u.log_sum);
    if constexpr (Form == LossForm::forward_kl) return scan.cross / scan.u.at_t * inverse_t + gap;
    if constexpr (Form == LossForm::reverse_kl) {
      of_student = scan.cross / scan.z.at_t * inverse_t - gap;
      return of_student;
    }
    if (!call.numbers.mixing) return 0;
    const Mixture sums = mixture(of_z, of_u);
    of_student = sums.student;
    return call.numbers.beta * sums.teacher + (1.0F - call.numbers.beta) * sums.student;
  }
};

/// `Copied`: dynamic shared memory holds the row's z and u.
template <LossForm Form, int V, bool Copied, class Z, class U>
__global__ void __launch_bounds__(loss_most_threads) loss_kernel(LossCall<Z, U> call) {
  const std::int64_t row = blockIdx.x;
  const LossRow<Form, V, Z, U> work(call, row, Copied ? shared_memory<std::byte>() : nullptr);
  const bool leader = threadIdx.x == 0;
  if (work.target < 0) {
    if (call.numbers.gradient) work.write_zeros();
    if (!leader) return;
    call.ce[row] = 0;
    if (call.kl != nullptr) call.kl[row] = 0;
    if (call.teacher_ce != nullptr) call.teacher_ce[row] = 0;
    return;
  }
  const float z0 = to_float(work.z[work.target]);
  float u0 = 0;
  if constexpr (has_dense_teacher(Form)) u0 = to_float(work.u[work.target]);
  SupportToken support;
  if constexpr (Form == LossForm::top_k) support = SupportToken::of(call, row, work.z);
  const RowScan scan = work.scan(z0, u0);
  const element::Normaliser of_z = scan.z.normaliser();
  element::Normaliser of_u;
  LossNumbers numbers = call.numbers;
  float divergence = 0;
  float of_student = 0;
  if constexpr (has_dense_teacher(Form)) {
    of_u = scan.u.normaliser();
    divergence = work.dense_divergence(scan, z0, u0, of_z, of_u, of_student);
    if (Form == LossForm::js && !numbers.mixing) numbers.weight = 0;
  }
  float correction = 0;
  if constexpr (Form == LossForm::top_k) {
    const SupportLoss loss = support_loss(support, of_z, call.divergence, numbers);
    divergence = loss.divergence;
    correction = loss.correction;
    numbers.weight = loss.weight;
  }
  if (leader) {
    call.ce[row] = of_z.log_sum_one - (z0 - of_z.max);
    if (call.kl != nullptr) call.kl[row] = not_negative(divergence);
    if (call.teacher_ce != nullptr) {
      call.teacher_ce[row] = has_dense_teacher(Form) ? of_u.log_sum_one - (u0 - of_u.max) : 0.0F;
    }
  }
  if (!numbers.gradient) return;
  // The scan's barriers lie between all reads of z0 and of the support's logits and these writes.
  work.write_gradient(of_z, of_u, numbers, of_student);
  if constexpr (Form == LossForm::top_k) {
    __syncthreads();
    if (!support.valid) return;
    float dz = logit_gradient<Form>(support.z, 0, of_z, of_u, numbers, 0) + correction;
    if (support.column == work.target) dz -= numbers.weight_one;
    work.z[support.column] = from_float<Z>(dz);
  }
}

}  // namespace maestro::cuda
