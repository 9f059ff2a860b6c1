// SPDX-License-Identifier: Apache-2.0
// Losses of logits divided over the vocabulary against losses of undivided logits; ranks take turns, and the test adds
// up their numbers.
#include "runtime/ops/cuda/losses/loss_parts.hpp"

#include <algorithm>

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

/// Number of columns by rank; the last `padding` columns belong to no softmax.
struct Cut {
  std::vector<std::int64_t> columns;
  std::int64_t padding = 0;
  [[nodiscard]] std::int64_t whole() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : columns) sum += count;
    return sum;
  }
};

struct Setting {
  Cut cut;
  DType student = DType::f32;
  DType teacher = DType::f32;
  bool dense = true;
  std::int64_t k = 0;
  DistillationWeights weights = {};
};

constexpr std::int64_t row_count = 4;
constexpr double logits_softcap = 16;  // applied to all logits

class LossParts : public KernelTest {
 protected:
  struct Rank {
    LossPart part;
    PartSums own;
    std::int64_t width = 0;
  };

  void expect_agreement(const Setting& setting) {
    const std::int64_t whole = setting.cut.whole();
    const OwnedTensor z = random(setting.student, {row_count, whole}, 3);
    const OwnedTensor u = random(setting.teacher, {row_count, whole}, 3);
    const OwnedTensor targets = random_ids(row_count, 0, whole - 1);
    targets.set(1, -1);
    targets.set(2, static_cast<double>(whole - 1));
    TeacherRows top_k;
    if (setting.k > 0) {
      top_k.values = upload(random(DType::f32, {row_count, setting.k}));
      OwnedTensor indices(DType::i32, Shape{row_count, setting.k});
      for (std::int64_t i = 0; i < row_count * setting.k; ++i) indices.set(i, static_cast<double>(i % setting.k * 3));
      top_k.indices = upload(indices);
    }

    LossRows rows = loss_rows(upload(z), whole, upload(targets));
    TeacherRows teacher = top_k;
    if (setting.dense) teacher.logits = upload(u);
    std::vector<Rank> ranks;
    std::int64_t first = 0;
    for (const std::int64_t columns : setting.cut.columns) {
      Rank rank;
      const Tensor own = columns_of(z, first, columns, setting.cut.padding);
      rank.part.rows = loss_rows(own, columns, rows.targets);
      rank.part.teacher = top_k;
      if (setting.dense) rank.part.teacher.logits = columns_of(u, first, columns, setting.cut.padding);
      rank.part.weights = setting.weights;
      rank.part.first = first;
      rank.part.whole_vocabulary = whole;
      rank.own = {empty(DType::f32, {row_count, 2}), empty(DType::f32, {row_count, part_sums(setting.k)}),
                  empty(DType::f32, {row_count, 2})};
      rank.width = columns;
      ranks.push_back(rank);
      first += columns;
    }

    run([&] {
      setting.dense || setting.k > 0 ? distillation_rows(at_, rows, teacher, setting.weights)
                                     : cross_entropy_rows(at_, rows);
    });
    run_parts(ranks);
    const Values wanted = download(rows.logits);
    for (const Rank& rank : ranks) {
      expect_near(rank.part.rows.losses.ce, download(rows.losses.ce), "ce");
      expect_near(rank.part.rows.losses.kl, download(rows.losses.kl), "kl", 2e-5);
      expect_near(rank.part.rows.losses.teacher_ce, download(rows.losses.teacher_ce), "teacher_ce");
      expect_near(rank.part.rows.logits, columns_of(wanted, whole, rank, setting.cut.padding), "dlogits");
    }
  }

 private:
  LossRows loss_rows(const Tensor& logits, std::int64_t vocabulary, const Tensor& targets) {
    const auto losses = [&] { return empty(DType::f32, {row_count}); };
    return {logits, vocabulary, targets, 0.25, true, {losses(), losses(), losses()}, 0, logits_softcap};
  }
  Tensor columns_of(const OwnedTensor& from, std::int64_t first, std::int64_t count, std::int64_t padding) {
    const OwnedTensor part(from.tensor().dtype(), {row_count, count + padding});
    for (std::int64_t row = 0; row < row_count; ++row) {
      for (std::int64_t i = 0; i < count + padding; ++i) {
        const double value = i < count ? from.get(row * from.tensor().columns() + first + i) : 1e4;
        part.set(row * (count + padding) + i, value);
      }
    }
    return upload(part);
  }
  static Values columns_of(const Values& whole, std::int64_t columns, const Rank& rank, std::int64_t padding) {
    Values part;
    for (std::int64_t row = 0; row < row_count; ++row) {
      const auto begin = whole.begin() + row * columns + rank.part.first;
      part.insert(part.end(), begin, begin + rank.width);
      part.insert(part.end(), static_cast<std::size_t>(padding), 0.0);
    }
    return part;
  }

  /// Combines the ranks' tensors as a collective does.
  template <class Combine>
  Tensor joined(const std::vector<Rank>& ranks, Tensor PartSums::*member, Combine combine) {
    const Tensor& first = ranks.front().own.*member;
    const OwnedTensor joint(DType::f32, first.shape(), download(first));
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      const Values values = download(ranks[rank].own.*member);
      for (std::int64_t i = 0; i < first.elements(); ++i) {
        joint.set(i, combine(joint.get(i), values[static_cast<std::size_t>(i)]));
      }
    }
    return upload(joint);
  }
  void run_parts(const std::vector<Rank>& ranks) {
    for (const Rank& rank : ranks) run([&] { scan_part(at_, rank.part, rank.own); });
    PartSums joint;
    joint.maxima = joined(ranks, &PartSums::maxima, [](double a, double b) { return std::max(a, b); });
    for (const Rank& rank : ranks) run([&] { move_part(at_, rank.part, rank.own, joint.maxima); });
    joint.sums = joined(ranks, &PartSums::sums, std::plus<>());
    if (has_mixture(ranks.front().part)) {
      for (const Rank& rank : ranks) {
        run([&] { mix_part(at_, rank.part, {joint.maxima, joint.sums, rank.own.mixtures}); });
      }
      joint.mixtures = joined(ranks, &PartSums::mixtures, std::plus<>());
    }
    for (const Rank& rank : ranks) run([&] { finish_part(at_, rank.part, joint); });
  }
};

const std::vector<Cut> cuts = {{{64}}, {{32, 24}}, {{17, 1, 30}}, {{40, 0}}, {{5, 8, 3}, 8}, {{0, 24}, 8}};

TEST_F(LossParts, cross_entropy) {
  for (const Cut& cut : cuts) {
    for (const DType act : both_types) expect_agreement({.cut = cut, .student = act, .dense = false});
  }
}

TEST_F(LossParts, divergences_of_a_teacher_cut_likewise) {
  for (const Cut& cut : cuts) {
    for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
      for (const double temperature : {1.0, 2.0}) {
        expect_agreement({.cut = cut, .teacher = DType::bf16, .weights = {divergence, temperature, 0.6, 0.3}});
      }
    }
  }
}

TEST_F(LossParts, js_at_an_end_of_beta) {
  expect_agreement({.cut = cuts[2], .weights = {Divergence::js, 2, 0.6, 0}});
}

TEST_F(LossParts, a_top_k_teacher_whose_tokens_lie_on_several_ranks) {
  for (const Cut& cut : cuts) {
    for (const Divergence divergence : {Divergence::forward_kl, Divergence::js}) {
      for (const std::int64_t k : {1, 7}) {
        expect_agreement({.cut = cut, .dense = false, .k = k, .weights = {divergence, 2, 0.6, 0.3}});
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cuda
