// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/losses/cut_loss.hpp"

namespace maestro::cuda {

void cut_loss_rows(const Launch& at, const LossPart& part, Communicator& group) {
  const std::int64_t rows = part.rows.targets.elements();
  if (rows == 0) return;
  const Workspace::Scope scope(*at.workspace);
  const auto taken = [&](std::int64_t columns) {
    const auto count = static_cast<std::size_t>(rows * columns);
    return Tensor(at.workspace->take_array<float>(count), DType::f32, Shape{rows, columns});
  };
  const std::int64_t k = part.teacher.indices.defined() ? part.teacher.indices.columns() : 0;
  const PartSums own{taken(part_maxima(part.rest)), taken(part_sums(k, part.rest)), taken(2)};
  const Tensor maxima = taken(part_maxima(part.rest));
  scan_part(at, part, own);
  cast(at, own.maxima, maxima);
  group.all_reduce_max(maxima.span<float>());
  move_part(at, part, own, maxima);
  group.all_reduce_sum(own.sums.span<float>());
  const PartSums joint{maxima, own.sums, own.mixtures};
  if (has_mixture(part)) {
    mix_part(at, part, joint);
    group.all_reduce_sum(own.mixtures.span<float>());
  }
  finish_part(at, part, joint);
}

}  // namespace maestro::cuda
