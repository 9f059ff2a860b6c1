// SPDX-License-Identifier: Apache-2.0
// Losses over a divided vocabulary with the collectives between the kernels, on ranks that are threads. Only with the
// fake, whose device memory is CPU memory.
#include "runtime/ops/cuda/losses/cut_loss.hpp"

#include "tests/ops/cuda/kernel_test.hpp"
#include "tests/ops/cuda/on_stream.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro::cuda {
namespace {

constexpr std::int64_t row_count = 5;
constexpr std::int64_t own_columns = 24;

class CutLoss : public KernelTest {
 protected:
  LossRows on_device(const OwnedTensor& logits, const OwnedTensor& targets) {
    const auto losses = [&] { return empty(DType::f32, {row_count}); };
    return {upload(logits), logits.tensor().columns(), upload(targets), 0.25, true, {losses(), losses(), losses()}};
  }
  static OwnedTensor columns_of(const OwnedTensor& whole, std::int64_t first) {
    OwnedTensor part(whole.tensor().dtype(), {row_count, own_columns});
    for (std::int64_t i = 0; i < row_count * own_columns; ++i) {
      part.set(i, whole.get(i / own_columns * whole.tensor().columns() + first + i % own_columns));
    }
    return part;
  }

  void expect_agreement(std::int64_t ranks, bool teacher, const DistillationWeights& weights) {
    const std::int64_t whole = ranks * own_columns;
    const OwnedTensor z = random(DType::f32, {row_count, whole}, 3);
    const OwnedTensor u = random(DType::f32, {row_count, whole}, 3);
    const OwnedTensor targets = random_ids(row_count, -1, whole - 1);
    const LossRows rows = on_device(z, targets);
    TeacherRows whole_teacher;
    if (teacher) whole_teacher.logits = upload(u);
    if (weights.ratio_cap > 0) whole_teacher.drawn = upload(random(DType::f32, {row_count}, 2));
    run([&] { teacher ? distillation_rows(at_, rows, whole_teacher, weights) : cross_entropy_rows(at_, rows); });
    std::vector<LossPart> parts;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      LossPart part{on_device(columns_of(z, rank * own_columns), targets), {}, weights, rank * own_columns, whole};
      if (teacher) part.teacher.logits = upload(columns_of(u, rank * own_columns));
      part.teacher.drawn = whole_teacher.drawn;
      parts.push_back(part);
    }
    testing::on_ranks(ranks, [&](Communicator& group) {
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
      Workspace workspace;
      OnStream on_stream(group, stream);
      cut_loss_rows({stream, at_.multiprocessors, &workspace}, parts[static_cast<std::size_t>(group.rank())],
                    on_stream);
      check(cudaStreamDestroy(stream), "stream");  // completes the remaining work
    });
    const Values gradient = download(rows.logits);
    for (const LossPart& part : parts) {
      expect_near(part.rows.losses.ce, download(rows.losses.ce), "ce");
      expect_near(part.rows.losses.kl, download(rows.losses.kl), "kl", 2e-5);
      const OwnedTensor wanted(DType::f32, {row_count, whole}, gradient);
      expect_near(part.rows.logits, columns_of(wanted, part.first).values(), "dlogits");
    }
  }
};

TEST_F(CutLoss, cross_entropy_over_ranks) {
  for (const std::int64_t ranks : {1, 2, 3}) expect_agreement(ranks, false, {});
}

TEST_F(CutLoss, divergences_over_ranks) {
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
    expect_agreement(3, true, {divergence, 2, 0.6, 0.3});
  }
}

TEST_F(CutLoss, policy_gradients_over_ranks) {
  for (const double ratio_cap : {0.0, 1.25}) {
    expect_agreement(3, true, {Divergence::policy_gradient, 2, 0.6, 0.5, ratio_cap});
  }
}

}  // namespace
}  // namespace maestro::cuda
