// SPDX-License-Identifier: Apache-2.0
// Losses of logit rows against the CPU's (runtime/ops/cpu/losses/distillation_row.hpp), which tests/ops/loss compares
// with higher precision and recorded values.
#include <cmath>

#include "runtime/ops/cpu/losses/distillation_row.hpp"
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

struct Problem {
  std::int64_t rows = 5;
  std::int64_t vocabulary = 64;
  std::int64_t columns = 64;  ///< columns of the logits, with the rest and padding
  std::int64_t rest = 0;      ///< columns after the vocabulary that only the cross-entropy uses
  DType student = DType::f32;
  DType teacher = DType::f32;
  bool with_teacher = true;
  std::int64_t k = 0;  ///< k for a top-k teacher; 0: dense
  DistillationWeights weights = {};
  double offset = 0;     ///< value added to all logits
  double softcap = 0;    ///< softcap applied to the logits
  bool sampled = false;  ///< whether the teacher is known at the targets alone
};

struct Answer {
  Values dlogits, ce, kl, teacher_ce, policy;
  LossSums sums;
};

class LossKernels : public KernelTest {
 protected:
  /// Returns logits that bf16 holds exactly; padding is large, so that errors show if it is not left out.
  OwnedTensor logits(const Problem& problem, DType dtype) {
    OwnedTensor made = random(dtype, {problem.rows, problem.columns}, 3);
    for (std::int64_t i = 0; i < problem.rows * problem.columns; ++i) {
      const std::int64_t used = problem.vocabulary + problem.rest;
      made.set(i, i % problem.columns < used ? made.get(i) + problem.offset : 1e4);
    }
    return made;
  }

  void make(const Problem& problem) {
    problem_ = problem;
    student_ = std::make_unique<OwnedTensor>(logits(problem, problem.student));
    teacher_ = std::make_unique<OwnedTensor>(logits(problem, problem.teacher));
    targets_ = std::make_unique<OwnedTensor>(random_ids(problem.rows, -1, problem.vocabulary - 1));
    if (problem.rows > 1) targets_->set(1, -1);
    if (problem.rows > 0) targets_->set(0, static_cast<double>(problem.vocabulary - 1));
    log_p_ = std::make_unique<OwnedTensor>(random(DType::f32, {problem.rows}, 2));
    log_mu_ = std::make_unique<OwnedTensor>(random(DType::f32, {problem.rows}, 2));
    for (std::int64_t r = 0; r < problem.rows; ++r) log_mu_->set(r, log_mu_->get(r) - std::log(problem.vocabulary));
    if (problem.k == 0) return;
    values_ = std::make_unique<OwnedTensor>(random(DType::f32, {problem.rows, problem.k}, 2));
    indices_ = std::make_unique<OwnedTensor>(DType::i32, Shape{problem.rows, problem.k});
    for (std::int64_t r = 0; r < problem.rows; ++r) {
      for (std::int64_t i = 0; i < problem.k; ++i) {  // distinct, some outside; the first is the target's
        indices_->set(r * problem.k + i, static_cast<double>((targets_->get(r) + 3 * static_cast<double>(i))));
      }
    }
  }

  Answer wanted() const {
    Answer answer;
    const Problem& p = problem_;
    cpu::LossTerms terms;
    terms.teacher = !p.with_teacher ? cpu::LossTerms::Teacher::none
                    : p.k > 0       ? cpu::LossTerms::Teacher::top_k
                    : p.sampled     ? cpu::LossTerms::Teacher::sampled
                                    : cpu::LossTerms::Teacher::dense;
    terms.divergence = p.weights.divergence;
    terms.temperature = p.weights.temperature;
    terms.alpha = p.weights.alpha;
    terms.beta = p.weights.beta;
    terms.scale = scale;
    terms.ratio_cap = p.weights.ratio_cap;
    const cpu::RowLoss loss(cpu::loss_kernels(cpu::Isa::generic), terms);
    for (std::int64_t row = 0; row < p.rows; ++row) add_row(loss, row, answer);
    const double t = p.weights.temperature;
    const bool policy = p.weights.divergence == Divergence::policy_gradient;
    const double learned = policy ? answer.sums.policy : t * t * answer.sums.kl;
    answer.sums.total = (1 - p.weights.alpha) * answer.sums.ce + p.weights.alpha * learned;
    return answer;
  }

  void expect_agreement(const Problem& problem) {
    SCOPED_TRACE("divergence " + std::to_string(static_cast<int>(problem.weights.divergence)) + ", " +
                 std::to_string(problem.rows) + " x " + std::to_string(problem.vocabulary) + " of " +
                 std::to_string(problem.columns) + ", k " + std::to_string(problem.k) + ", T " +
                 std::to_string(problem.weights.temperature) + ", beta " + std::to_string(problem.weights.beta));
    make(problem);
    const Answer want = wanted();
    LossRows rows;
    rows.logits = upload(*student_);
    rows.vocabulary = problem.vocabulary;
    rows.targets = upload(*targets_);
    rows.scale = scale;
    rows.rest = problem.rest;
    rows.gradient = true;
    rows.softcap = problem.softcap;
    rows.losses = {empty(DType::f32, {problem.rows}), empty(DType::f32, {problem.rows}),
                   empty(DType::f32, {problem.rows})};
    TeacherRows teacher;
    const bool policy = problem.weights.divergence == Divergence::policy_gradient;
    if (policy) rows.losses.policy = empty(DType::f32, {problem.rows});
    if (policy) rows.losses.ratio = empty(DType::f32, {problem.rows});
    if (problem.weights.ratio_cap > 0) teacher.drawn = upload(*log_mu_);
    if (problem.sampled) teacher.sampled = upload(*log_p_);
    if (problem.with_teacher && problem.k == 0 && !problem.sampled) teacher.logits = upload(*teacher_);
    if (problem.k > 0) teacher.values = upload(*values_);
    if (problem.k > 0) teacher.indices = upload(*indices_);
    LossSums* sums = nullptr;
    check(cudaHostAlloc(reinterpret_cast<void**>(&sums), sizeof *sums, cudaHostAllocMapped), "pinned memory");
    const auto launch_rows = [&] {
      if (problem.with_teacher) {
        distillation_rows(at_, rows, teacher, problem.weights);
      } else {
        cross_entropy_rows(at_, rows);
      }
    };
    run([&] {
      rows.gradient = false;
      launch_rows();  // leaves the logits unchanged
      rows.gradient = true;
      launch_rows();
      sum_rows(at_, rows.targets, rows.losses, problem.weights, sums, false);
      sum_rows(at_, rows.targets, rows.losses, problem.weights, sums, true);
    });
    // f32 sums with up to 30000 terms; their logarithms are compared.
    constexpr double tolerance = 2e-5;
    expect_near(rows.losses.ce, want.ce, "ce", tolerance);
    expect_near(rows.losses.kl, want.kl, "kl", tolerance);
    expect_near(rows.losses.teacher_ce, want.teacher_ce, "teacher_ce", tolerance);
    if (policy) expect_near(rows.losses.policy, want.policy, "policy", tolerance);
    expect_near(rows.logits, want.dlogits, "dlogits", tolerance);
    EXPECT_NEAR(sums->ratio, 2 * want.sums.ratio, tolerance * want.sums.ratio);
    EXPECT_EQ(sums->capped, 2 * want.sums.capped);
    EXPECT_EQ(sums->tokens, 2 * want.sums.tokens);
    EXPECT_NEAR(sums->total, 2 * want.sums.total, tolerance * std::abs(2 * want.sums.total) + 1e-4);
    check(cudaFreeHost(sums), "pinned memory");
  }

  static constexpr double scale = 0.25;

 private:
  void add_row(const cpu::RowLoss& loss, std::int64_t row, Answer& answer) const {
    const Problem& p = problem_;
    const auto vocabulary = static_cast<std::size_t>(p.vocabulary + p.rest);
    std::vector<float> z(vocabulary);
    std::vector<float> u(vocabulary);
    std::vector<float> dz(static_cast<std::size_t>(p.columns));
    for (std::size_t i = 0; i < vocabulary; ++i) {
      z[i] = student_->get(row * p.columns + static_cast<std::int64_t>(i));
      u[i] = teacher_->get(row * p.columns + static_cast<std::int64_t>(i));
    }
    const auto target = static_cast<std::int32_t>(targets_->get(row));
    LossSums sums;
    if (target >= 0) {
      std::vector<cpu::SupportToken> support;
      std::vector<float> values;
      for (std::int64_t i = 0; i < p.k; ++i) {
        const auto column = static_cast<std::int32_t>(indices_->get(row * p.k + i));
        if (column < 0 || column >= p.vocabulary) continue;
        support.push_back({.column = column});
        values.push_back(values_->get(row * p.k + i));
      }
      cpu::RowState state;
      loss.begin(state, target, support, values.data());
      state.log_p = static_cast<float>(log_p_->get(row));
      state.log_mu = static_cast<float>(log_mu_->get(row));
      const bool dense = p.with_teacher && p.k == 0 && !p.sampled;
      const cpu::RowLoss::Columns columns{{z.data(), dense ? u.data() : nullptr, p.vocabulary}, 0};
      const cpu::RowSegment rest{z.data() + p.vocabulary, nullptr, p.rest};
      loss.scan(state, columns);
      if (p.rest > 0) loss.scan_rest(state, rest);
      loss.normalise(state);
      if (loss.needs_mixture()) loss.mix(state, columns);
      loss.finish(state, sums);
      loss.gradient(state, columns, dz.data());
      if (p.rest > 0) loss.rest_gradient(state, rest, dz.data() + p.vocabulary);
      for (std::size_t i = 0; p.softcap > 0 && i < vocabulary; ++i) {
        dz[i] *= 1 - static_cast<float>(z[i] * z[i] / (p.softcap * p.softcap));
      }
    }
    answer.sums += sums;
    answer.policy.push_back(sums.policy);
    answer.ce.push_back(sums.ce);
    answer.kl.push_back(sums.kl);
    answer.teacher_ce.push_back(sums.teacher_ce);
    answer.dlogits.insert(answer.dlogits.end(), dz.begin(), dz.end());
  }

  Problem problem_;
  std::unique_ptr<OwnedTensor> student_, teacher_, targets_, values_, indices_, log_p_, log_mu_;
};

constexpr Divergence divergences[] = {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js};

TEST_F(LossKernels, cross_entropy_of_any_size_and_padding) {
  for (const DType act : both_types) {
    for (const auto& [vocabulary, columns] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {7, 7}, {7, 8}, {64, 64}, {1001, 1008}, {1023, 1023}, {5000, 5000}}) {
      for (const std::int64_t rows : {0, 1, 5, 33}) {
        if (rows * columns > 6000) continue;
        Problem problem{.rows = rows, .vocabulary = vocabulary, .columns = columns, .student = act};
        problem.with_teacher = false;
        expect_agreement(problem);
      }
    }
  }
}

TEST_F(LossKernels, divergences_at_any_temperature) {
  for (const Divergence divergence : divergences) {
    for (const double temperature : {1.0, 2.0, 0.5}) {
      for (const std::int64_t columns : {1, 7, 64, 1000}) {
        for (const DType student : both_types) {
          for (const DType teacher : both_types) {
            Problem problem{.rows = 4, .vocabulary = columns, .columns = columns, .student = student};
            problem.teacher = teacher;
            problem.weights = {divergence, temperature, 0.6, 0.3};
            expect_agreement(problem);
          }
        }
      }
    }
  }
}

TEST_F(LossKernels, columns_of_the_cross_entropy_alone) {
  for (const auto& [vocabulary, rest] :
       std::initializer_list<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 30}, {64, 8}, {50, 3}, {3, 700}}) {
    for (const double temperature : {1.0, 2.0}) {
      for (const DType act : both_types) {
        Problem problem{.rows = 4, .vocabulary = vocabulary, .columns = (vocabulary + rest + 9) / 8 * 8, .rest = rest};
        problem.student = act;
        for (const Divergence divergence : divergences) {
          problem.weights = {divergence, temperature, 0.6, 0.3};
          expect_agreement(problem);
        }
        problem.k = 1;
        problem.weights = {Divergence::forward_kl, temperature, 0.6, 0.3};
        expect_agreement(problem);
      }
    }
  }
}

TEST_F(LossKernels, gradients_of_logits_before_their_soft_cap) {
  for (const DType act : both_types) {
    Problem problem{.rows = 4, .vocabulary = 50, .columns = 64, .rest = 9, .student = act, .softcap = 16};
    problem.with_teacher = false;
    expect_agreement(problem);
    problem.with_teacher = true;
    for (const Divergence divergence : divergences) {
      problem.weights = {divergence, 2, 0.6, 0.3};
      expect_agreement(problem);
    }
    problem.k = 10;
    problem.weights = {Divergence::forward_kl, 2, 0.6, 0.3};
    expect_agreement(problem);
  }
}

TEST_F(LossKernels, divergences_of_bf16_logits_far_from_zero_and_padded) {
  for (const Divergence divergence : divergences) {
    Problem problem{.rows = 3, .vocabulary = 50, .columns = 56, .student = DType::bf16, .teacher = DType::bf16};
    problem.weights = {divergence, 1, 1, 0.5};
    problem.offset = 300;
    expect_agreement(problem);
  }
}

TEST_F(LossKernels, policy_gradients_with_a_ratio_and_without) {
  for (const double ratio_cap : {0.0, 1.25}) {
    for (const double temperature : {1.0, 2.0}) {
      for (const auto& [vocabulary, rest] :
           std::initializer_list<std::pair<std::int64_t, std::int64_t>>{{64, 0}, {7, 30}, {1000, 8}, {50, 3}}) {
        for (const DType act : both_types) {
          Problem problem{
              .rows = 33, .vocabulary = vocabulary, .columns = (vocabulary + rest + 9) / 8 * 8, .rest = rest};
          problem.student = problem.teacher = act;
          problem.weights = {Divergence::policy_gradient, temperature, 0.6, 0.5, ratio_cap};
          problem.softcap = rest == 3 ? 16 : 0;
          expect_agreement(problem);
          problem.sampled = true;
          expect_agreement(problem);
        }
      }
    }
  }
}

TEST_F(LossKernels, js_at_the_ends_of_beta_is_zero) {
  for (const double beta : {0.0, 1.0}) {
    for (const std::int64_t k : {0, 5}) {
      Problem problem{.k = k};
      problem.weights = {Divergence::js, 2, 0.5, beta};
      expect_agreement(problem);
    }
  }
}

TEST_F(LossKernels, a_top_k_teacher) {
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::js}) {
    for (const std::int64_t k : {1, 10, 200}) {
      for (const DType act : both_types) {
        Problem problem{.rows = 4, .vocabulary = 300, .columns = 304, .student = act, .k = k};
        problem.weights = {divergence, 2, 0.6, 0.3};
        expect_agreement(problem);
        problem.weights.temperature = 1;
        expect_agreement(problem);
      }
    }
  }
}

TEST_F(LossKernels, rows_that_fill_what_shared_memory_is_had_without_asking) {
  constexpr std::int64_t floats = 48 * 1024 / 4;
  Problem problem{.rows = 2, .vocabulary = floats, .columns = floats};
  problem.with_teacher = false;
  expect_agreement(problem);
  problem.with_teacher = true;
  problem.vocabulary = problem.columns = floats / 2;
  problem.weights = {Divergence::forward_kl, 2, 0.5, 0.5};
  expect_agreement(problem);
}

TEST_F(LossKernels, rows_that_take_a_thread_several_loads_at_a_time) {
  for (const DType act : both_types) {  // a row of 50257 is copied to shared memory only in bf16
    Problem problem{.rows = 3, .vocabulary = 50257, .columns = 50304, .student = act, .teacher = act};
    problem.with_teacher = false;
    expect_agreement(problem);
    problem.with_teacher = true;
    problem.vocabulary = 15000;
    problem.columns = 15008;
    for (const Divergence divergence : divergences) {
      for (const double temperature : {1.0, 2.0}) {
        problem.weights = {divergence, temperature, 0.5, 0.5};
        expect_agreement(problem);
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cuda
