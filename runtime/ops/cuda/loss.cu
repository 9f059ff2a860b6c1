#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/loss_kernel.cuh"

namespace maestro::cuda {

namespace {

template <class Z, class U>
LossCall<Z, U> call_of(const LossRows& rows, const TeacherRows& teacher, const DistillationWeights& weights) {
  const Tensor& logits = rows.logits;
  LossCall<Z, U> call{};
  call.z = logits.data<Z>();
  call.u = data_of<U>(teacher.logits);
  call.values = data_of<float>(teacher.values);
  call.indices = data_of<std::int32_t>(teacher.indices);
  call.targets = rows.targets.data<std::int32_t>();
  call.ce = rows.losses.ce.data<float>();
  call.kl = data_of<float>(rows.losses.kl);
  call.teacher_ce = data_of<float>(rows.losses.teacher_ce);
  call.z_stride = logits.columns();
  call.u_stride = teacher.logits.defined() ? teacher.logits.columns() : 0;
  call.k = teacher.indices.defined() ? static_cast<int>(teacher.indices.columns()) : 0;
  call.vocabulary = static_cast<int>(rows.vocabulary);
  call.divergence = weights.divergence;
  call.numbers.inverse_t = static_cast<float>(1 / weights.temperature);
  call.numbers.weight = static_cast<float>(weights.alpha * weights.temperature * rows.scale);
  call.numbers.weight_one = static_cast<float>((1 - weights.alpha) * rows.scale);
  call.numbers.beta = static_cast<float>(weights.beta);
  call.numbers.unit = weights.temperature == 1;
  call.numbers.mixing = weights.divergence == Divergence::js && weights.beta > 0 && weights.beta < 1;
  call.numbers.gradient = rows.gradient;
  return call;
}

bool fits(const Tensor& logits) {
  return !logits.defined() || packs_fit(logits, logits.columns(), flat_width);
}

template <LossForm Form, class Z, class U>
void launch_loss(const Launch& at, const LossRows& rows, const TeacherRows& teacher, const LossCall<Z, U>& call) {
  if (rows.logits.rows() == 0) return;
  with_flag(fits(rows.logits) && fits(teacher.logits), [&](auto packed) {
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

template <LossForm Form>
void dense_loss(const Launch& at, const LossRows& rows, const TeacherRows& teacher,
                const DistillationWeights& weights) {
  with_type(rows.logits.dtype(), [&](auto student) {
    with_type(teacher.logits.dtype(), [&](auto other) {
      using Z = typename decltype(student)::type;
      using U = typename decltype(other)::type;
      launch_loss<Form>(at, rows, teacher, call_of<Z, U>(rows, teacher, weights));
    });
  });
}

template <LossForm Form>
void student_loss(const Launch& at, const LossRows& rows, const TeacherRows& teacher,
                  const DistillationWeights& weights) {
  with_type(rows.logits.dtype(), [&](auto student) {
    using Z = typename decltype(student)::type;
    launch_loss<Form>(at, rows, teacher, call_of<Z, Z>(rows, teacher, weights));
  });
}

/// One block: rows in a fixed order, in f64.
__global__ void __launch_bounds__(sum_rows_threads)
    sum_rows_kernel(const std::int32_t* targets, std::int64_t rows, const float* ce, const float* kl,
                    const float* teacher_ce, LossSums* sums, double alpha, double temperature, bool accumulate) {
  double total[3] = {};
  std::int64_t tokens = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    if (targets[row] < 0) continue;
    ++tokens;
    total[0] += static_cast<double>(ce[row]);
    if (kl != nullptr) total[1] += static_cast<double>(kl[row]);
    if (teacher_ce != nullptr) total[2] += static_cast<double>(teacher_ce[row]);
  }
  for (double& sum : total) sum = block_sum(sum);
  const double count = block_sum(static_cast<double>(tokens));  // exact below 2^53
  if (threadIdx.x != 0) return;
  sums->ce = (accumulate ? sums->ce : 0) + total[0];
  sums->kl = (accumulate ? sums->kl : 0) + total[1];
  sums->teacher_ce = (accumulate ? sums->teacher_ce : 0) + total[2];
  sums->tokens = (accumulate ? sums->tokens : 0) + static_cast<std::int64_t>(count);
  sums->total = (1 - alpha) * sums->ce + alpha * temperature * temperature * sums->kl;
}

}  // namespace

void cross_entropy_rows(const Launch& at, const LossRows& rows) {
  DistillationWeights none;
  none.alpha = 0;
  student_loss<LossForm::cross_entropy>(at, rows, {}, none);
}

void distillation_rows(const Launch& at, const LossRows& rows, const TeacherRows& teacher,
                       const DistillationWeights& weights) {
  assert(teacher.logits.defined() != teacher.indices.defined());
  if (teacher.indices.defined()) {
    assert(teacher.indices.columns() <= most_support);
    return student_loss<LossForm::top_k>(at, rows, teacher, weights);
  }
  switch (weights.divergence) {
    case Divergence::forward_kl:
      return dense_loss<LossForm::forward_kl>(at, rows, teacher, weights);
    case Divergence::reverse_kl:
      return dense_loss<LossForm::reverse_kl>(at, rows, teacher, weights);
    case Divergence::js:
      return dense_loss<LossForm::js>(at, rows, teacher, weights);
  }
}

void sum_rows(const Launch& at, const Tensor& targets, const RowLosses& losses, const DistillationWeights& weights,
              LossSums* sums, bool accumulate) {
  launch({"sum_rows", 1, sum_rows_threads, 0, at.stream}, sum_rows_kernel, targets.data<std::int32_t>(),
         targets.elements(), losses.ce.data<float>(), data_of<float>(losses.kl), data_of<float>(losses.teacher_ce),
         sums, weights.alpha, weights.temperature, accumulate);
}

}  // namespace maestro::cuda
