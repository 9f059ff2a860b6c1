// SPDX-License-Identifier: Apache-2.0
// Losses over a vocabulary divided over ranks: a problem, solved by any table on any number of ranks, and checks that
// the answers agree.
#pragma once

#include <functional>
#include <tuple>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/parallel_functions.hpp"
#include "tests/ops/loss_problem.hpp"
#include "tests/ops/parallel_ranks.hpp"

namespace maestro::testing {

using cpu::LossProblem;

struct RankPlace {
  const OperatorTable& ops;
  Communicator* group = nullptr;         ///< rank's group; null: a single rank with everything
  std::function<void()> settle = [] {};  ///< function that waits for the table's queued work
};

inline constexpr std::size_t arena_bytes = std::size_t{1} << 20;

/// Returns a copy of `host` in memory of the tape's table; `host` must not change before the work is complete.
inline Block given(Tape& tape, const Tensor& host) {
  Block block = tape.scratch(host.shape(), host.dtype());
  tape.ops().upload(host, block.tensor());
  return block;
}

/// Returns the values of `tensor` after its work is complete.
inline Values fetched(const RankPlace& at, const Tensor& tensor) {
  const OwnedTensor copy(tensor.dtype(), tensor.shape());
  at.ops.download(tensor, copy);
  at.settle();
  return copy.values();
}

/// A parameter with rows `range` of `values`.
struct TablePart {
  TablePart(const OperatorTable& ops, const OwnedTensor& values, RowRange range, bool trained) {
    const OwnedTensor own = rows_of(values, range);
    parameter = &parameters.add({"head", own.tensor().shape(), true, [values = own.values()](std::span<float> to) {
                                   std::copy(values.begin(), values.end(), to.begin());
                                 }});
    parameters.allocate(trained, ops.memory());
  }
  Parameters parameters;
  Parameter* parameter = nullptr;
};

inline OwnedTensor columns_of(const OwnedTensor& whole, RowRange range) {
  OwnedTensor part(whole.tensor().dtype(), Shape{whole.tensor().rows(), range.count});
  for (std::int64_t r = 0; r < part.tensor().rows(); ++r) {
    for (std::int64_t c = 0; c < range.count; ++c) {
      part.set(r * range.count + c, whole.get(r * whole.tensor().columns() + range.first + c));
    }
  }
  return part;
}

struct Answer {
  LossSums sums;
  Values dhidden;
  Values dhead;
};

struct Setting {
  DType act = DType::f32;
  bool record = true;
  bool head_trained = true;
};

class ParallelLoss {
 public:
  ParallelLoss(const LossProblem& problem, const Setting& setting)
      : p_(problem),
        setting_(setting),
        hidden_(setting.act, {p_.rows, p_.width}, p_.hidden),
        head_(DType::f32, {p_.vocabulary, p_.width}, p_.head),
        targets_(DType::i32, {p_.rows}, p_.targets),
        teacher_hidden_(setting.act, {p_.rows, p_.teacher_width}, p_.teacher_hidden),
        teacher_head_(DType::f32, {p_.teacher_vocabulary, p_.teacher_width}, p_.teacher_head),
        logits_(p_.logits_dtype, {p_.rows, p_.teacher_vocabulary}, p_.teacher_logits),
        values_(DType::f32, {p_.rows, p_.k}, p_.teacher_values),
        indices_(DType::i32, {p_.rows, p_.k}, p_.teacher_indices),
        rest_(DType::f32, {p_.rows, 1}, p_.teacher_rest),
        sampled_(DType::f32, {p_.rows, 1}, p_.sampled),
        teacher_sampled_(DType::f32, {p_.rows, 1}, p_.teacher_sampled) {}

  [[nodiscard]] Answer answer(const RankPlace& at) const {
    const TablePart head(at.ops, head_, range_of(p_.vocabulary, at.group), setting_.head_trained);
    const TablePart teacher_head(at.ops, teacher_head_, range_of(p_.teacher_vocabulary, at.group), false);
    const OwnedTensor own_logits = columns_of(logits_, range_of(p_.teacher_vocabulary, at.group));
    Arena arena(arena_bytes, at.ops.memory());
    Tape tape(at.ops, arena, setting_.act, setting_.record);
    const Block hidden_memory = given(tape, hidden_), targets = given(tape, targets_);
    const Block teacher_hidden = given(tape, teacher_hidden_), logits = given(tape, own_logits);
    const Block values = given(tape, values_), indices = given(tape, indices_), rest = given(tape, rest_);
    const Var hidden = tape.input(hidden_memory.tensor(), true);
    const Block sampled = given(tape, sampled_), teacher_sampled = given(tape, teacher_sampled_);
    HeadLoss loss{&targets.tensor(), p_.scale, p_.softcap};
    if (p_.ratio_cap > 0) loss.sampled = sampled.tensor();
    const VocabularyPart student = part_of(p_.vocabulary, at.group);
    Pending<LossSums> sums = LossSums();
    if (p_.with_teacher) {
      TeacherSignal signal{p_.boundary, {}, nullptr, {}, {}, {}, p_.teacher_vocabulary, p_.teacher_softcap, {}};
      if (p_.boundary == TeacherOutput::hidden) {
        signal.hidden = tape.input(teacher_hidden.tensor());
        signal.head = teacher_head.parameter;
      }
      if (p_.boundary == TeacherOutput::logits) signal.logits = logits.tensor();
      if (names_tokens(p_.boundary)) signal.values = values.tensor();
      if (names_tokens(p_.boundary)) signal.indices = indices.tensor();
      if (p_.boundary == TeacherOutput::top_k_rest) signal.rest = rest.tensor();
      if (p_.boundary == TeacherOutput::sampled) signal.sampled = teacher_sampled.tensor();
      const DistillationTerms terms{p_.divergence, p_.temperature, p_.alpha, p_.beta, p_.shared, p_.ratio_cap};
      sums = distillation_loss(tape, hidden, *head.parameter, signal, terms, loss,
                               {student, part_of(p_.teacher_vocabulary, at.group)});
    } else {
      sums = cross_entropy_loss(tape, hidden, *head.parameter, loss, student);
    }
    tape.backward();
    Answer answer;
    if (hidden.gradient().defined()) answer.dhidden = fetched(at, hidden.gradient());
    if (head.parameter->trained()) answer.dhead = fetched(at, head.parameter->gradient());
    at.settle();
    answer.sums = sums;
    return answer;
  }

  /// Return a CPU's answer for the complete vocabulary, and each rank's answer.
  [[nodiscard]] Answer whole() const { return answer({processor_}); }
  [[nodiscard]] std::vector<Answer> over(std::int64_t ranks) const {
    std::vector<Answer> all(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](Communicator& group) {
      all[static_cast<std::size_t>(group.rank())] = answer({processor_, &group});
    });
    return all;
  }

 private:
  [[nodiscard]] static RowRange range_of(std::int64_t vocabulary, const Communicator* group) {
    return group == nullptr ? RowRange{0, vocabulary} : row_part(vocabulary, group->size(), group->rank());
  }
  [[nodiscard]] static VocabularyPart part_of(std::int64_t vocabulary, Communicator* group) {
    return {group, vocabulary, range_of(vocabulary, group).first};
  }

  LossProblem p_;
  Setting setting_;
  cpu::CpuOperatorTable processor_;
  OwnedTensor hidden_, head_, targets_, teacher_hidden_, teacher_head_, logits_, values_, indices_, rest_;
  OwnedTensor sampled_, teacher_sampled_;
};

inline void expect_near(const LossSums& got, const LossSums& wanted, double tolerance) {
  const auto near = [tolerance](double a, double b, const char* what) {
    EXPECT_LE(std::abs(a - b), tolerance * std::max(1.0, std::abs(b))) << what << " " << a << ", wanted " << b;
  };
  near(got.ce, wanted.ce, "ce");
  near(got.kl, wanted.kl, "kl");
  near(got.total, wanted.total, "total");
  near(got.teacher_ce, wanted.teacher_ce, "teacher_ce");
  near(got.policy, wanted.policy, "policy");
  near(got.ratio, wanted.ratio, "ratio");
  EXPECT_EQ(got.capped, wanted.capped);
  EXPECT_EQ(got.tokens, wanted.tokens);
}

inline void expect_same_bits(const LossSums& got, const LossSums& wanted) {
  EXPECT_EQ(got.ce, wanted.ce);
  EXPECT_EQ(got.kl, wanted.kl);
  EXPECT_EQ(got.total, wanted.total);
  EXPECT_EQ(got.teacher_ce, wanted.teacher_ce);
  EXPECT_EQ(got.policy, wanted.policy);
  EXPECT_EQ(got.ratio, wanted.ratio);
  EXPECT_EQ(got.capped, wanted.capped);
  EXPECT_EQ(got.tokens, wanted.tokens);
}

/// Tolerances relative to the largest value.
struct Tolerances {
  double sums = 1e-5;
  double gradients = 1e-5;
  double least_gradient = 1e-30;  ///< lower bound for a gradient's largest value, for relative errors
};

/// Compares the ranks' combined answers with the answer of a single rank; the sums have the same bits on every rank.
inline void expect_agreement(const std::vector<Answer>& parts, const Answer& whole, const Tolerances& within) {
  Values dhidden(whole.dhidden.size());
  Values dhead;
  for (const Answer& part : parts) {
    expect_same_bits(part.sums, parts.front().sums);
    ASSERT_EQ(part.dhidden.size(), dhidden.size());
    for (std::size_t i = 0; i < dhidden.size(); ++i) dhidden[i] += part.dhidden[i];
    dhead.insert(dhead.end(), part.dhead.begin(), part.dhead.end());
  }
  expect_near(parts.front().sums, whole.sums, within.sums);
  EXPECT_LE(worst_error(dhidden, whole.dhidden, within.least_gradient), within.gradients);
  EXPECT_LE(worst_error(dhead, whole.dhead, within.least_gradient), within.gradients);
}

/// Compares, by rank, a recording pass with a pass that does not record and with a pass whose head is frozen.
inline void expect_same_losses(const std::vector<Answer>& recorded, const std::vector<Answer>& forward,
                               const std::vector<Answer>& frozen) {
  for (std::size_t rank = 0; rank < recorded.size(); ++rank) {
    expect_same_bits(forward[rank].sums, recorded[rank].sums);
    expect_same_bits(frozen[rank].sums, recorded[rank].sums);
    EXPECT_TRUE(forward[rank].dhidden.empty());
    EXPECT_EQ(frozen[rank].dhidden, recorded[rank].dhidden);
  }
}

struct Sizes {
  const char* name;
  std::int64_t rows, vocabulary, teacher_vocabulary, shared, k;
};
inline void PrintTo(const Sizes& of, std::ostream* out) {
  *out << of.name;
}
using Terms = std::tuple<TeacherOutput, Divergence>;
inline const Terms every_terms[] = {
    {TeacherOutput::hidden, Divergence::forward_kl},
    {TeacherOutput::hidden, Divergence::reverse_kl},
    {TeacherOutput::hidden, Divergence::js},
    {TeacherOutput::logits, Divergence::forward_kl},
    {TeacherOutput::logits, Divergence::reverse_kl},
    {TeacherOutput::logits, Divergence::js},
    {TeacherOutput::top_k, Divergence::forward_kl},
    {TeacherOutput::top_k, Divergence::js},
    {TeacherOutput::hidden, Divergence::policy_gradient},
    {TeacherOutput::logits, Divergence::policy_gradient},
    {TeacherOutput::sampled, Divergence::policy_gradient},
};

/// Returns the problem with these terms.
inline LossProblem with_terms(LossProblem p, const Terms& terms) {
  std::tie(p.boundary, p.divergence) = terms;
  if (p.divergence == Divergence::policy_gradient) return cpu::with_policy(p, p.boundary);
  return p.boundary == TeacherOutput::top_k_rest ? cpu::with_rest(p) : p;
}

/// Terms that lack GPU kernels.
inline const Terms processor_terms[] = {
    {TeacherOutput::top_k_rest, Divergence::forward_kl},
    {TeacherOutput::top_k_rest, Divergence::reverse_kl},
    {TeacherOutput::top_k_rest, Divergence::js},
};

inline LossProblem problem_of(const Sizes& of, std::int64_t width = 6) {
  LossProblem p;
  p.rows = of.rows;
  p.width = width;
  p.teacher_width = width - 1;
  p.vocabulary = of.vocabulary;
  p.teacher_vocabulary = of.teacher_vocabulary;
  p.shared = of.shared;
  p.k = of.k;
  p.scale = 0.25;
  return cpu::random_loss_problem(p, 5);
}

}  // namespace maestro::testing
