// Output-layer losses of logits that are cut over the vocabulary (Megatron-LM, Shoeybi et al. 2019, section 3): each
// rank has the columns of its own tokens, and the ranks add up a few numbers per row between these calls:
//
//   scan_part(own)            own.maxima and own.sums of the rank's columns
//   joint = max over ranks of own.maxima
//   move_part(own, joint)     own.sums as if the rank had had the joint maxima
//   sums = sum over ranks of own.sums
//   mix_part(joint)           of js, where has_mixture(): mixtures of the rank's columns; then their sum over ranks
//   finish_part(joint)        losses, the same on every rank, and the gradient of the rank's columns in place
//
// The rest is as in kernels.hpp. A rank may have no columns.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

struct LossPart {
  LossRows rows;        ///< logits of this rank's tokens, `vocabulary` of them in the softmax; targets of the whole one
  TeacherRows teacher;  ///< logits of the same tokens, or the whole top k; neither: cross-entropy alone
  DistillationWeights weights;
  std::int64_t first = 0;             ///< this rank's first token
  std::int64_t whole_vocabulary = 0;  ///< tokens of the softmax of all ranks
};

/// Numbers of rows, f32, that ranks exchange.
struct PartSums {
  Tensor maxima;    ///< (R, 2)
  Tensor sums;      ///< (R, part_sums(k)), k of a top-k teacher or 0
  Tensor mixtures;  ///< (R, 2), of js
};
[[nodiscard]] constexpr std::int64_t part_sums(std::int64_t k) {
  return 7 + k;  // sums of exponentials of z and u at T and at 1, the target's logits, the cross term; the support's
}
[[nodiscard]] bool has_mixture(const LossPart& part);

void scan_part(const Launch& at, const LossPart& part, const PartSums& own);
/// `maxima` (R, 2): those of all ranks.
void move_part(const Launch& at, const LossPart& part, const PartSums& own, const Tensor& maxima);
void mix_part(const Launch& at, const LossPart& part, const PartSums& joint);
void finish_part(const Launch& at, const LossPart& part, const PartSums& joint);

}  // namespace maestro::cuda
