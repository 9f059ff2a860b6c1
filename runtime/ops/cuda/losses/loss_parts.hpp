// SPDX-License-Identifier: Apache-2.0
// Output-layer losses of logits that are cut over the vocabulary (Megatron-LM, Shoeybi et al. 2019, section 3): each
// rank has the columns of its tokens, and the ranks add up a few numbers per row between these calls:
//
//   scan_part(own)            own.maxima and own.sums of the rank's columns
//   joint = max over ranks of own.maxima
//   move_part(own, joint)     own.sums for the joint maxima
//   sums = sum over ranks of own.sums
//   mix_part(joint)           for js, if has_mixture(): mixtures of the rank's columns; then their sum over ranks
//   finish_part(joint)        losses, the same on every rank, and the gradient of the rank's columns in place
//
// The rest is as in kernels.hpp. A rank may be without columns.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

struct LossPart {
  LossRows rows;        ///< logits of this rank's tokens, `vocabulary` of them shared; targets in the full vocabulary
  TeacherRows teacher;  ///< logits of the same tokens, or the full top k, or sampled; none: cross-entropy only
  DistillationWeights weights;
  std::int64_t first = 0;             ///< this rank's first token
  std::int64_t whole_vocabulary = 0;  ///< shared tokens of all ranks
  bool rest = false;                  ///< some rank has tokens that only the cross-entropy uses (LossRows::rest)
};

/// Numbers per row, f32, that ranks exchange.
struct PartSums {
  Tensor maxima;    ///< (R, part_maxima(rest))
  Tensor sums;      ///< (R, part_sums(k, rest)); k is 0 without a top-k teacher
  Tensor mixtures;  ///< (R, 2), for js
};
[[nodiscard]] constexpr std::int64_t part_maxima(bool rest = false) {
  return rest ? 3 : 2;  // for z, u and the rest
}
[[nodiscard]] constexpr std::int64_t part_sums(std::int64_t k, bool rest = false) {
  // Sums of exponentials of z and u at T and at 1, the target's logits, the cross term; the support's; the rest's sum.
  return 7 + k + (rest ? 1 : 0);
}
[[nodiscard]] bool has_mixture(const LossPart& part);

void scan_part(const Launch& at, const LossPart& part, const PartSums& own);
/// Rescales own.sums to `maxima`, the maxima over all ranks, in the layout of own.maxima.
void move_part(const Launch& at, const LossPart& part, const PartSums& own, const Tensor& maxima);
void mix_part(const Launch& at, const LossPart& part, const PartSums& joint);
void finish_part(const Launch& at, const LossPart& part, const PartSums& joint);

}  // namespace maestro::cuda
