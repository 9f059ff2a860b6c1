// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/losses/loss_call.cuh"
#include "runtime/ops/cuda/losses/loss_kernel.cuh"

namespace maestro::cuda {

namespace {

template <LossForm Form, class Z, class U>
void launch_loss(const Launch& at, const LossRows& rows, const TeacherRows& teacher, const LossCall<Z, U>& call) {
  with_flag(logits_fit(rows.logits) && logits_fit(teacher.logits), [&](auto packed) {
    constexpr int V = decltype(packed)::value ? flat_width : 1;
    const LossTiles tiles =
        loss_tiles(call.vocabulary, sizeof(Z) + (has_dense_teacher(Form) ? sizeof(U) : 0), V, call.k);
    with_flag(tiles.shared_bytes > 0, [&](auto copied) {
      launch({"loss_rows", static_cast<unsigned>(rows.logits.rows()), static_cast<unsigned>(tiles.threads),
              tiles.shared_bytes, at.stream},
             loss_kernel<Form, V, decltype(copied)::value, Z, U>, call);
    });
  });
}

void loss_rows(const Launch& at, const LossRows& rows, const TeacherRows& teacher, const DistillationWeights& weights) {
  if (rows.logits.rows() == 0) return;
  with_loss_call(rows, teacher, weights,
                 [&](auto form, const auto& call) { launch_loss<decltype(form)::value>(at, rows, teacher, call); });
}

/// Figures of rows; all but ce may be null.
struct RowFigures {
  const float* ce;
  const float* kl;
  const float* teacher_ce;
  const float* policy;
  const float* ratio;
};

/// Sums the rows in a single block, in a fixed order, in f64.
__global__ void __launch_bounds__(sum_rows_threads)
    sum_rows_kernel(const std::int32_t* targets, std::int64_t rows, RowFigures figures, LossSums* sums,
                    DistillationWeights weights, bool accumulate) {
  const double alpha = weights.alpha;
  const double temperature = weights.temperature;
  const bool policy = figures.policy != nullptr;
  const bool with_ratio = policy && weights.ratio_cap > 0;
  double total[6] = {};
  std::int64_t tokens = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    if (targets != nullptr && targets[row] < 0) continue;
    ++tokens;
    total[0] += static_cast<double>(figures.ce[row]);
    if (figures.kl != nullptr) total[1] += static_cast<double>(figures.kl[row]);
    if (figures.teacher_ce != nullptr) total[2] += static_cast<double>(figures.teacher_ce[row]);
    if (policy) total[3] += static_cast<double>(figures.policy[row]);
    if (!with_ratio) continue;
    const double ratio = static_cast<double>(figures.ratio[row]);
    const bool capped = ratio > weights.ratio_cap;
    total[4] += capped ? weights.ratio_cap : ratio;
    total[5] += capped ? 1 : 0;
  }
  for (double& sum : total) sum = block_sum(sum);
  const double count = block_sum(static_cast<double>(tokens));  // exact below 2^53
  if (threadIdx.x != 0) return;
  sums->ce = (accumulate ? sums->ce : 0) + total[0];
  sums->kl = (accumulate ? sums->kl : 0) + total[1];
  sums->teacher_ce = (accumulate ? sums->teacher_ce : 0) + total[2];
  sums->tokens = (accumulate ? sums->tokens : 0) + static_cast<std::int64_t>(count);
  sums->policy = (accumulate ? sums->policy : 0) + total[3];
  sums->ratio = (accumulate ? sums->ratio : 0) + total[4];
  sums->capped = (accumulate ? sums->capped : 0) + total[5];
  const double learned = policy ? alpha * sums->policy : alpha * temperature * temperature * sums->kl;
  sums->total = (1 - alpha) * sums->ce + learned;
}

}  // namespace

void cross_entropy_rows(const Launch& at, const LossRows& rows) {
  loss_rows(at, rows, {}, {});
}

void distillation_rows(const Launch& at, const LossRows& rows, const TeacherRows& teacher,
                       const DistillationWeights& weights) {
  assert(teacher.logits.defined() + teacher.indices.defined() + teacher.sampled.defined() == 1);
  loss_rows(at, rows, teacher, weights);
}

void sum_rows(const Launch& at, const Tensor& targets, const RowLosses& losses, const DistillationWeights& weights,
              LossSums* sums, bool accumulate) {
  launch({"sum_rows", 1, sum_rows_threads, 0, at.stream}, sum_rows_kernel, data_of<std::int32_t>(targets),
         losses.ce.elements(),
         RowFigures{losses.ce.data<float>(), data_of<float>(losses.kl), data_of<float>(losses.teacher_ce),
                    data_of<float>(losses.policy), data_of<float>(losses.ratio)},
         sums, weights, accumulate);
}

}  // namespace maestro::cuda
