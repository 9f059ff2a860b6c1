// SPDX-License-Identifier: Apache-2.0
// Elementwise work of the output-layer losses on a row segment: a run of vocabulary columns of the student's logits z
// and the teacher's logits u, both f32. Compiled once per instruction set; plain types only (see isa.hpp).
//
// Notation: e_t(x) = exp((x - max) / T), S_t its sum over the vocabulary, q = e_t(z) / S_t, p the same from u, q1 =
// softmax(z) at temperature 1 over all of the student's columns, m = beta p + (1 - beta) q. Maxima are subtracted
// before any exponential, and logs of probabilities are (x - max) / T - log S_t, so nothing overflows or loses digits
// at small temperatures.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"
#include "runtime/ops/element_math.hpp"

namespace maestro::cpu {

struct RowSegment {
  const float* z = nullptr;
  const float* u = nullptr;  ///< null: no teacher logits
  std::int64_t count = 0;
};

using element::Normaliser;

enum class CrossTerm : std::uint8_t {
  none,
  teacher,  ///< sum e_t(u) ((u - u_max) - (z - z_max)), for KL(p || q)
  student   ///< sum e_t(z) ((z - z_max) - (u - u_max)), for KL(q || p)
};
struct SegmentScan {
  RowSegment segment;
  float z_max = 0;
  float u_max = 0;
  float inverse_t = 1;
  CrossTerm cross = CrossTerm::none;
};
struct SegmentSums {
  float z_t = 0;
  float z_one = 0;
  float u_t = 0;
  float u_one = 0;
  float cross = 0;
};

enum class GradientForm : std::uint8_t {
  student_only,  ///< dz = weight q + weight_one q1
  forward_kl,    ///< dz = weight (q - p) + weight_one q1
  reverse_kl,    ///< dz = weight q (log q - log p - divergence) + weight_one q1
  js             ///< dz = weight q (1 - beta) (log q - log m - divergence) + weight_one q1
};
struct SegmentGradient {
  RowSegment segment;
  float* dz = nullptr;  ///< may be segment.z
  Normaliser z;
  Normaliser u;
  GradientForm form = GradientForm::student_only;
  float inverse_t = 1;
  float weight = 0;
  float weight_one = 0;
  float divergence = 0;  ///< KL(q || p) for reverse_kl, KL(q || m) for js
  float beta = 0.5F;
};
struct SegmentMixture {
  float teacher = 0;  ///< sum p (log p - log m)
  float student = 0;  ///< sum q (log q - log m)
};

struct LossKernels {
  float (*maximum)(const float* values, std::int64_t count);
  SegmentSums (*scan)(const SegmentScan& scan);
  /// Returns the two terms of the Jensen-Shannon divergence; uses segment, z, u, inverse_t and beta of the call.
  SegmentMixture (*mixture)(const SegmentGradient& call);
  void (*gradient)(const SegmentGradient& call);
};
MAESTRO_KERNELS(LossKernels, loss_kernels)

}  // namespace maestro::cpu
