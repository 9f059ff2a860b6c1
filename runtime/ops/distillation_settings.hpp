// SPDX-License-Identifier: Apache-2.0
// The start-up check of a distillation loss, for sections to call before any step.
#pragma once

#include "runtime/ops/distillation_options.hpp"

namespace maestro {

struct DistillationSettings {
  TeacherOutput boundary = TeacherOutput::hidden;
  Divergence divergence = Divergence::forward_kl;
  double temperature = 1;
  double alpha = 0.5;
  double beta = 0.5;
  std::int64_t student_vocabulary = 0;
  std::int64_t teacher_vocabulary = 0;
  std::int64_t shared_vocabulary = 0;
  std::int64_t top_k = 0;  ///< k of boundary = top_k and top_k_rest
  double ratio_cap = 0;    ///< largest ratio of policy_gradient; 0: none
};

/// Throws JobError, naming the setting and the nearest valid value, for: temperature not positive and finite; alpha
/// outside [0, 1]; js with beta outside (0, 1), since that divergence is identically zero; reverse_kl with top_k, which
/// is infinite because the teacher's probability outside its k tokens is zero; policy_gradient with top_k or
/// top_k_rest, which may lack the target; sampled with another divergence; a ratio_cap that is negative or not finite;
/// a shared vocabulary that is empty or larger than either model's; k outside [1, shared vocabulary].
void validate(const DistillationSettings& settings);

}  // namespace maestro
