// SPDX-License-Identifier: Apache-2.0
// A small distillation problem for tests: inputs as doubles, run through OutputLoss with any precision and block shape.
#pragma once

#include <memory>
#include <numeric>

#include "runtime/ops/cpu/losses/distillation.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::cpu {

struct LossProblem {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t teacher_width = 0;
  std::int64_t vocabulary = 0;
  std::int64_t teacher_vocabulary = 0;
  std::int64_t shared = 0;
  std::int64_t k = 0;
  bool with_teacher = true;  ///< whether there is a teacher; false: cross_entropy()
  TeacherOutput boundary = TeacherOutput::hidden;
  DType logits_dtype = DType::f32;
  Divergence divergence = Divergence::forward_kl;
  double temperature = 1;
  double alpha = 0.5;
  double beta = 0.5;
  double scale = 1;
  double softcap = 0;
  double teacher_softcap = 0;  ///< softcap, also for the derived teacher logits
  testing::Values hidden, head, teacher_hidden, teacher_head, targets;
  testing::Values teacher_logits, teacher_values, teacher_indices;
  testing::Values teacher_rest;  ///< rest for boundary = top_k_rest, whose teacher_values are log-probabilities
  double ratio_cap = 0;
  testing::Values sampled, teacher_sampled;  ///< log mu and, for boundary = sampled, log p of the targets

  /// Derives the teacher logits and their k largest shared columns from teacher_hidden and teacher_head.
  void derive_boundaries() {
    teacher_logits.assign(static_cast<std::size_t>(rows * teacher_vocabulary), 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t v = 0; v < teacher_vocabulary; ++v) {
        double sum = 0;
        for (std::int64_t c = 0; c < teacher_width; ++c) {
          sum += teacher_hidden[static_cast<std::size_t>(r * teacher_width + c)] *
                 teacher_head[static_cast<std::size_t>(v * teacher_width + c)];
        }
        if (teacher_softcap > 0) sum = teacher_softcap * std::tanh(sum / teacher_softcap);
        teacher_logits[static_cast<std::size_t>(r * teacher_vocabulary + v)] = sum;
      }
    }
  }
};

struct LossAnswer {
  LossSums sums;
  testing::Values dhidden;
  testing::Values dhead;
};

struct LossRun {
  Isa isa = Isa::generic;
  DType act = DType::f32;
  LossLimits limits;
  Bf16Products bf16 = Bf16Products::converted;
  bool dhidden = true;
  bool dhead = true;
  double dhead_before = 0;
};

inline LossAnswer compute(const LossProblem& p, const LossRun& run) {
  using testing::OwnedTensor;
  ScratchPool scratch;
  const MatrixProducts products(run.isa, run.bf16, scratch);
  const OutputLoss loss(run.isa, products, scratch, run.limits);
  const OwnedTensor hidden(run.act, Shape{p.rows, p.width}, p.hidden);
  const OwnedTensor head(DType::f32, Shape{p.vocabulary, p.width}, p.head);
  const OwnedTensor targets(DType::i32, Shape{p.rows}, p.targets);
  const OwnedTensor dhidden(run.act, Shape{p.rows, p.width});
  const OwnedTensor dhead(DType::f32, Shape{p.vocabulary, p.width});
  dhidden.fill(1e6);  // must be overwritten
  dhead.fill(run.dhead_before);
  const auto packed = products.pack(head, run.act, PackFor::forward, nullptr);
  const auto packed_backward = products.pack(head, run.act, PackFor::backward_input, nullptr);

  DistillationHead call;
  call.student = {hidden, packed.get(), nullptr, p.vocabulary, targets, p.scale, {}, {}};
  call.student.softcap = p.softcap;
  if (run.dhidden) call.student.dhidden = dhidden;
  if (run.dhidden) call.student.head_backward = packed_backward.get();
  if (run.dhead) call.student.dhead = dhead;
  if (!p.with_teacher) return {loss.cross_entropy(call.student), dhidden.values(), dhead.values()};

  call.boundary = p.boundary;
  call.teacher_softcap = p.teacher_softcap;
  call.teacher_vocabulary = p.teacher_vocabulary;
  call.shared_vocabulary = p.shared;
  call.divergence = p.divergence;
  call.temperature = p.temperature;
  call.alpha = p.alpha;
  call.beta = p.beta;
  const OwnedTensor teacher_head(DType::f32, Shape{p.teacher_vocabulary, p.teacher_width}, p.teacher_head);
  const OwnedTensor teacher_hidden(run.act, Shape{p.rows, p.teacher_width}, p.teacher_hidden);
  const auto packed_teacher = products.pack(teacher_head, run.act, PackFor::forward, nullptr);
  const OwnedTensor logits(p.logits_dtype, Shape{p.rows, p.teacher_vocabulary}, p.teacher_logits);
  const OwnedTensor values(DType::f32, Shape{p.rows, p.k}, p.teacher_values);
  const OwnedTensor indices(DType::i32, Shape{p.rows, p.k}, p.teacher_indices);
  call.teacher_hidden = p.boundary == TeacherOutput::hidden ? teacher_hidden.tensor() : Tensor();
  call.teacher_head = p.boundary == TeacherOutput::hidden ? packed_teacher.get() : nullptr;
  call.teacher_logits = p.boundary == TeacherOutput::logits ? logits.tensor() : Tensor();
  const OwnedTensor rest(DType::f32, Shape{p.rows, 1}, p.teacher_rest);
  call.teacher_values = names_tokens(p.boundary) ? values.tensor() : Tensor();
  call.teacher_indices = names_tokens(p.boundary) ? indices.tensor() : Tensor();
  call.teacher_rest = p.boundary == TeacherOutput::top_k_rest ? rest.tensor() : Tensor();
  const OwnedTensor sampled(DType::f32, Shape{p.rows, 1}, p.sampled);
  const OwnedTensor teacher_sampled(DType::f32, Shape{p.rows, 1}, p.teacher_sampled);
  call.ratio_cap = p.ratio_cap;
  call.sampled = p.ratio_cap > 0 ? sampled.tensor() : Tensor();
  call.teacher_sampled = p.boundary == TeacherOutput::sampled ? teacher_sampled.tensor() : Tensor();
  return {loss.distillation(call), dhidden.values(), dhead.values()};
}

/// Returns random inputs that both precisions hold exactly; every fifth row lacks a target.
inline LossProblem random_loss_problem(LossProblem sizes, unsigned seed) {
  LossProblem p = std::move(sizes);
  std::mt19937 generator(seed);
  p.hidden = testing::exact_normals(generator, p.rows * p.width);
  p.head = testing::exact_normals(generator, p.vocabulary * p.width);
  p.teacher_hidden = testing::exact_normals(generator, p.rows * p.teacher_width);
  p.teacher_head = testing::exact_normals(generator, p.teacher_vocabulary * p.teacher_width);
  std::uniform_int_distribution<std::int64_t> token(0, p.shared - 1);
  for (std::int64_t r = 0; r < p.rows; ++r)
    p.targets.push_back(r % 5 == 2 ? -1.0 : static_cast<double>(token(generator)));
  p.derive_boundaries();
  std::uniform_real_distribution<double> start(0, 1);
  for (std::int64_t r = 0; r < p.rows; ++r) {  // k distinct columns, not only the largest
    const auto step = std::max<std::int64_t>(1, p.shared / std::max<std::int64_t>(1, p.k));
    for (std::int64_t i = 0; i < p.k; ++i) {
      const std::int64_t column = i * step + static_cast<std::int64_t>(start(generator) * static_cast<double>(step));
      p.teacher_indices.push_back(static_cast<double>(column));
      p.teacher_values.push_back(p.teacher_logits[static_cast<std::size_t>(r * p.teacher_vocabulary + column)]);
    }
  }
  return p;
}

/// Returns the problem with policy_gradient: targets that were drawn with the student's probabilities at 1, or up to
/// e^(1/2) times more or less.
inline LossProblem with_policy(LossProblem p, TeacherOutput boundary) {
  p.boundary = boundary;
  p.divergence = Divergence::policy_gradient;
  p.ratio_cap = 1.25;
  p.sampled.clear();
  p.teacher_sampled.clear();
  const auto log_probability = [&](std::int64_t target, double temperature, const auto& logit) {
    double sum = 0;
    for (std::int64_t v = 0; v < p.shared; ++v) sum += std::exp(logit(v) / temperature);
    return target < 0 ? 0 : logit(target) / temperature - std::log(sum);
  };
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const auto target = static_cast<std::int64_t>(p.targets[static_cast<std::size_t>(r)]);
    const auto z = [&](std::int64_t v) {
      const double* hidden = &p.hidden[static_cast<std::size_t>(r * p.width)];
      return std::inner_product(hidden, hidden + p.width, &p.head[static_cast<std::size_t>(v * p.width)], 0.0);
    };
    const auto u = [&](std::int64_t v) {
      return p.teacher_logits[static_cast<std::size_t>(r * p.teacher_vocabulary + v)];
    };
    p.sampled.push_back(log_probability(target, 1, z) + (static_cast<double>(r % 5) - 2) / 4);
    p.teacher_sampled.push_back(log_probability(target, p.temperature, u));
  }
  return p;
}

/// Returns the problem with boundary = top_k_rest: log-probabilities of the named tokens and of all others together.
inline LossProblem with_rest(LossProblem p) {
  p.boundary = TeacherOutput::top_k_rest;
  p.teacher_rest.clear();
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const double* logits = &p.teacher_logits[static_cast<std::size_t>(r * p.teacher_vocabulary)];
    double all = 0;
    for (std::int64_t v = 0; v < p.shared; ++v) all += std::exp(logits[v]);
    double others = all;
    for (std::int64_t i = r * p.k; i < (r + 1) * p.k; ++i) {
      double& value = p.teacher_values[static_cast<std::size_t>(i)];
      others -= std::exp(value);
      value -= std::log(all);
    }
    const bool none = p.k == p.shared || others <= 0;
    p.teacher_rest.push_back(none ? double{least_log_probability} : std::log(others / all));
  }
  return p;
}

}  // namespace maestro::cpu
