// SPDX-License-Identifier: Apache-2.0
// Kernels of losses that are cut over the vocabulary; order of calls: loss_parts.hpp. For kernel sources.
#pragma once

#include "runtime/ops/cuda/losses/loss_kernel.cuh"

namespace maestro::cuda {

/// Values that ranks exchange, by row.
struct PartRows {
  float* maxima;    // (R, maxima_stride): of z, u and, if the stride is 3, the rest
  float* sums;      // (R, stride); the rest's is last, if there is a rest
  float* mixtures;  // (R, 2)
  int stride;
  int maxima_stride;

  __device__ bool rest() const { return maxima_stride == 3; }
};

/// A row's sums in their memory layout; the logits of the support follow.
struct PartRecord {
  float z_t, z_one, z_target;
  float u_t, u_one, u_target;
  float cross;  // sum with the maxima as references
};
inline constexpr int record_floats = sizeof(PartRecord) / sizeof(float);

__device__ __forceinline__ PartRecord read_record(const float* from) {
  return {from[0], from[1], from[2], from[3], from[4], from[5], from[6]};
}
__device__ __forceinline__ void write_record(const PartRecord& record, float* to) {
  to[0] = record.z_t;
  to[1] = record.z_one;
  to[2] = record.z_target;
  to[3] = record.u_t;
  to[4] = record.u_one;
  to[5] = record.u_target;
  to[6] = record.cross;
}

template <LossForm Form, int V, class Z, class U>
__global__ void __launch_bounds__(loss_most_threads) scan_part_kernel(LossCall<Z, U> call, PartRows parts) {
  const std::int64_t row = blockIdx.x;
  const LossRow<Form, V, Z, U> work(call, row, nullptr);
  float* sums = parts.sums + row * parts.stride;
  float* maxima = parts.maxima + row * parts.maxima_stride;
  const auto thread = static_cast<int>(threadIdx.x);
  if (work.ignored) {  // so on every rank
    if (thread < parts.maxima_stride) maxima[thread] = 0;
    for (int i = thread; i < parts.stride; i += static_cast<int>(blockDim.x)) sums[i] = 0;
    return;
  }
  TargetLogits reference;  // any logit of the row, for the precision of the cross term
  if (call.vocabulary > 0) {
    reference.z = to_float(work.z[0]);
    if constexpr (has_dense_teacher(Form)) reference.u = to_float(work.u[0]);
  }
  const RowScan scan = work.scan(reference);
  const TargetLogits target = work.target_logits();
  if constexpr (Form == LossForm::top_k) {
    const SupportToken support = SupportToken::of(call, row, work.z);
    if (thread < call.k) sums[record_floats + thread] = support.z;
  }
  if (thread != 0) return;
  maxima[0] = scan.z.max;
  maxima[1] = scan.u.max;
  if (parts.rest()) maxima[2] = scan.rest.max;
  if (parts.rest()) sums[parts.stride - 1] = scan.rest.at_one;
  const float shift = (reference.u - scan.u.max) - (reference.z - scan.z.max);
  float cross = scan.cross;
  if constexpr (Form == LossForm::forward_kl) cross += shift * scan.u.at_t;
  if constexpr (Form == LossForm::reverse_kl) cross -= shift * scan.z.at_t;
  write_record({scan.z.at_t, scan.z.at_one, target.z, scan.u.at_t, scan.u.at_one, target.u, cross}, sums);
}

/// Body for for_rows_kernel: rescales a row's sums to maxima at least as large.
struct MovedPartRows {
  PartRows parts;
  const float* joint;  // same layout as parts.maxima
  float inverse_t;
  LossForm form;

  __device__ void operator()(std::int64_t row, int) const {
    float* sums = parts.sums + row * parts.stride;
    PartRecord record = read_record(sums);
    const float* own = parts.maxima + row * parts.maxima_stride;
    const float* all = joint + row * parts.maxima_stride;
    const float dz = own[0] - all[0];
    const float du = own[1] - all[1];
    const float z_factor = element::exponential(dz * inverse_t);
    const float u_factor = element::exponential(du * inverse_t);
    if (form == LossForm::forward_kl) record.cross = u_factor * (record.cross + (du - dz) * record.u_t);
    if (form == LossForm::reverse_kl) record.cross = z_factor * (record.cross + (dz - du) * record.z_t);
    record.z_t *= z_factor;
    record.u_t *= u_factor;
    record.z_one *= element::exponential(dz);
    record.u_one *= element::exponential(du);
    write_record(record, sums);
    if (parts.rest()) sums[parts.stride - 1] *= element::exponential(own[2] - all[2]);
  }
};

/// Returns the scan of the full vocabulary.
__device__ __forceinline__ RowScan joint_scan(const PartRecord& record, const PartRows& parts, std::int64_t row) {
  const float* maxima = parts.maxima + row * parts.maxima_stride;
  RowScan scan;
  if (parts.rest()) {
    const float sum = parts.sums[row * parts.stride + parts.stride - 1];
    scan.rest = {maxima[2], sum, sum};
  }
  scan.z = {maxima[0], record.z_t, record.z_one};
  scan.u = {maxima[1], record.u_t, record.u_one};
  scan.cross = record.cross;
  scan.z0 = maxima[0];
  scan.u0 = maxima[1];
  return scan;
}

template <int V, class Z, class U>
__global__ void __launch_bounds__(loss_most_threads) mix_part_kernel(LossCall<Z, U> call, PartRows parts) {
  const std::int64_t row = blockIdx.x;
  const LossRow<LossForm::js, V, Z, U> work(call, row, nullptr);
  RowMixture mixture;
  if (!work.ignored) {
    const RowScan scan = joint_scan(read_record(parts.sums + row * parts.stride), parts, row);
    mixture = work.mixture(scan.z.normaliser(), scan.u.normaliser());
  }
  if (threadIdx.x != 0) return;
  parts.mixtures[row * 2] = mixture.teacher;
  parts.mixtures[row * 2 + 1] = mixture.student;
}

template <LossForm Form, int V, class Z, class U>
__global__ void __launch_bounds__(loss_most_threads) finish_part_kernel(LossCall<Z, U> call, PartRows parts) {
  const std::int64_t row = blockIdx.x;
  const LossRow<Form, V, Z, U> work(call, row, nullptr);
  if (work.ignored) return work.write_ignored(row);
  const float* sums = parts.sums + row * parts.stride;
  const PartRecord record = read_record(sums);
  const RowScan scan = joint_scan(record, parts, row);
  SupportToken support;
  if constexpr (Form == LossForm::top_k) {
    support = SupportToken::of(call, row, work.z);
    if (support.valid) support.z = sums[record_floats + static_cast<int>(threadIdx.x)];
  }
  RowMixture mixture;
  if (Form == LossForm::js && parts.mixtures != nullptr) {
    mixture = {parts.mixtures[row * 2], parts.mixtures[row * 2 + 1]};
  }
  finish_row<Form>(work, row, scan, {record.z_target, record.u_target}, support, &mixture);
}

}  // namespace maestro::cuda
