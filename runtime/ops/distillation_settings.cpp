// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/distillation_settings.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text << "distillation: ";
  (text << ... << parts);
  throw JobError(text.str());
}

void check_divergence(const DistillationSettings& s) {
  if (s.divergence == Divergence::js && !(s.beta > 0 && s.beta < 1)) {
    refuse("beta = ", s.beta, " makes divergence = \"js\" zero everywhere; use 0 < beta < 1, or divergence = \"",
           s.beta >= 1 ? "reverse_kl" : "forward_kl", "\"");
  }
  if (s.divergence == Divergence::reverse_kl && s.boundary == TeacherOutput::top_k) {
    refuse(
        "divergence = \"reverse_kl\" is infinite with boundary = \"top_k\", where the teacher has no probability "
        "outside "
        "its ",
        s.top_k, " tokens; use divergence = \"forward_kl\" or \"js\", or boundary = \"top_k_rest\" or \"logits\"");
  }
}

void check_policy(const DistillationSettings& s) {
  const bool policy = s.divergence == Divergence::policy_gradient;
  if (policy && names_tokens(s.boundary)) {
    refuse("loss = \"policy_gradient\" needs the teacher's probability of each sampled token, which boundary = \"",
           s.boundary == TeacherOutput::top_k ? "top_k" : "top_k_rest",
           "\" has for only k tokens; use boundary = \"hidden\", \"logits\" or \"sampled\"");
  }
  if (!policy && s.boundary == TeacherOutput::sampled) {
    refuse(
        "boundary = \"sampled\" only has the teacher's probability of the sampled token, which no divergence can be ",
        "computed from; use loss = \"policy_gradient\", or boundary = \"hidden\" or \"logits\"");
  }
  if (!(s.ratio_cap >= 0) || !std::isfinite(s.ratio_cap)) {
    refuse("ratio_cap = ", s.ratio_cap, " must be at least 0 and finite; 0 leaves the ratio out");
  }
}

void check_vocabulary(const DistillationSettings& s) {
  const std::int64_t most = std::min(s.student_vocabulary, s.teacher_vocabulary);
  if (s.shared_vocabulary < 1 || s.shared_vocabulary > most) {
    refuse("a shared vocabulary of ", s.shared_vocabulary, " tokens does not fit the student's ", s.student_vocabulary,
           " and the teacher's ", s.teacher_vocabulary, "; use 1 to ", most);
  }
  if (names_tokens(s.boundary) && (s.top_k < 1 || s.top_k > s.shared_vocabulary)) {
    refuse("top_k = ", s.top_k, " must lie between 1 and the shared vocabulary of ", s.shared_vocabulary, " tokens");
  }
}

}  // namespace

void validate(const DistillationSettings& s) {
  if (!(s.temperature > 0) || !std::isfinite(s.temperature)) {
    refuse("temperature = ", s.temperature,
           " must be greater than 0 and finite; 1 leaves the distributions as they are");
  }
  if (!(s.alpha >= 0 && s.alpha <= 1)) {
    refuse("alpha = ", s.alpha, " must lie in [0, 1]: 0 is cross-entropy alone, 1 the divergence alone");
  }
  check_divergence(s);
  check_policy(s);
  check_vocabulary(s);
}

}  // namespace maestro
