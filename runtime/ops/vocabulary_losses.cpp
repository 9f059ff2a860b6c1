// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/vocabulary_losses.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/call_checks.hpp"

namespace maestro {

namespace {

// This file also implements the losses of functions.hpp: an uncut vocabulary is a part without a group.

/// Returns the packed form of a part's rows; null when it has none.
const PackedWeight* packed_part(Parameter& head, const OperatorTable& ops, DType compute, PackFor use) {
  return head.shape()[0] == 0 ? nullptr : &head.packed(ops, compute, use);
}

/// Returns the student's side of a loss call, with gradients only if the tape records and hidden states or head need
/// them.
CrossEntropyHead student_call(Tape& tape, const Var& hidden, Parameter& head, const HeadLoss& loss, Block& dhidden) {
  CrossEntropyHead call;
  call.hidden = hidden.value();
  call.head = packed_part(head, tape.ops(), tape.compute(), PackFor::forward);
  call.vocabulary = head.shape()[0];
  call.targets = *loss.targets;
  call.scale = loss.scale;
  call.softcap = loss.softcap;
  if (!tape.recording()) return call;
  if (hidden.needs_gradient()) {
    dhidden = tape.scratch(hidden.value().shape(), hidden.value().dtype());
    call.dhidden = dhidden.tensor();
    call.head_backward = packed_part(head, tape.ops(), tape.compute(), PackFor::backward_input);
  }
  call.dhead = head.gradient();
  return call;
}

void record_loss(Tape& tape, const Var& hidden, const Block& dhidden) {
  if (!dhidden.defined()) return;
  tape.record_root([&tape, hidden, dhidden] { tape.add_gradient(hidden, dhidden); });
}

/// A rank's part of the tokens below the shared vocabulary.
struct SharedTokens {
  RankPart student;
  RankPart teacher;
};

/// Vocabularies of different sizes over a group's ranks.
class TwoVocabularies {
 public:
  TwoVocabularies(const VocabularyPart& student, const VocabularyPart& teacher, std::int64_t shared)
      : group_(student.group), student_(student.vocabulary), teacher_(teacher.vocabulary), shared_(shared) {
    assert(student.group == teacher.group && shared <= student_ && shared <= teacher_);
    assert(student.first == rank_part(student_, *group_).first && teacher.first == rank_part(teacher_, *group_).first);
  }

  [[nodiscard]] Communicator& group() const { return *group_; }
  [[nodiscard]] SharedTokens of(std::int64_t rank) const {
    return {below_shared(rank_part(student_, group_->size(), rank)),
            below_shared(rank_part(teacher_, group_->size(), rank))};
  }
  [[nodiscard]] SharedTokens own() const { return of(group_->rank()); }
  /// Returns true if every rank has the same tokens of both; the result is the same on all ranks.
  [[nodiscard]] bool line_up() const {
    for (std::int64_t rank = 0; rank < group_->size(); ++rank) {
      const SharedTokens tokens = of(rank);
      if (!(tokens.student == tokens.teacher)) return false;
    }
    return true;
  }
  /// Returns the rows of a block for which every rank may hold all its logits of either vocabulary.
  [[nodiscard]] std::int64_t block_rows() const {
    constexpr std::int64_t block_bytes = std::int64_t{8} << 20;
    constexpr std::int64_t fewest = 128;  // fewer make matrix products slow
    const std::int64_t widest = (std::max(student_, teacher_) + group_->size() - 1) / group_->size();
    return std::max(fewest, block_bytes / (widest * static_cast<std::int64_t>(sizeof(float))));
  }
  /// Moves `rows` rows of the teacher's logits to the ranks with the student's tokens: `own` (rows, this rank's teacher
  /// tokens) on every rank -> moved (rows, own().student.count).
  void move(std::int64_t rows, const Tensor& logits, const Tensor& moved) const {
    const SharedTokens mine = own();
    const std::int64_t first = rank_part(teacher_, *group_).first;
    std::vector<BlockTransfer> sends;
    std::vector<BlockTransfer> receives;
    for (std::int64_t peer = 0; peer < group_->size(); ++peer) {
      const SharedTokens theirs = of(peer);
      const RankPart given = common(mine.teacher, theirs.student);
      if (given.count > 0) sends.push_back({peer, {0, rows, given.first - first, given.count}});
      const RankPart taken = common(theirs.teacher, mine.student);
      if (taken.count > 0) receives.push_back({peer, {0, rows, taken.first - mine.student.first, taken.count}});
    }
    group_->exchange(logits, sends, moved, receives);
  }

 private:
  [[nodiscard]] RankPart below_shared(RankPart part) const {
    const std::int64_t first = std::min(part.first, shared_);
    return {first, std::min(part.end(), shared_) - first};
  }
  [[nodiscard]] static RankPart common(RankPart a, RankPart b) {
    const std::int64_t first = std::max(a.first, b.first);
    return {first, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - first)};
  }

  Communicator* group_;
  std::int64_t student_;
  std::int64_t teacher_;
  std::int64_t shared_;
};

/// Returns rows [first, first + count) of a tensor, or the tensor itself if it is undefined or empty.
Tensor slice(const Tensor& rows, std::int64_t first, std::int64_t count) {
  return rows.elements() > 0 && rows.defined() ? rows.row_slice(first, count) : rows;
}

/// Returns false only if a block of rows lacks targets, so that its losses need no logits. The result is the same on
/// all ranks, because each has all targets. Targets in device memory are not read: a read would wait for the device.
bool may_have_targets(const OperatorTable& ops, const Tensor& targets) {
  if (!ops.memory().host()) return true;
  const std::span<const std::int32_t> values = targets.span<std::int32_t>();
  return std::any_of(values.begin(), values.end(), [](std::int32_t target) { return target >= 0; });
}

/// Runs `call` block by block of rows, with the teacher's logits moved to the ranks that have the student's.
Pending<LossSums> distillation_of_moved_logits(Tape& tape, const DistillationHead& call, const VocabularyPart& student,
                                               const TwoVocabularies& vocabularies) {
  const OperatorTable& ops = tape.ops();
  const std::int64_t rows = call.student.hidden.rows();
  const std::int64_t step = std::min(rows, vocabularies.block_rows());
  const std::int64_t teacher_tokens = rank_part(call.teacher_vocabulary, vocabularies.group()).count;
  const bool computed = call.boundary == TeacherOutput::hidden;
  const DType dtype = computed ? DType::f32 : call.teacher_logits.dtype();
  const Block logits_memory = computed ? tape.scratch({step, teacher_tokens}, DType::f32) : Block();
  const Block moved_memory = tape.scratch({step, vocabularies.own().student.count}, dtype);
  const Tensor targets = call.student.targets.reshaped(Shape{rows, 1});
  std::vector<Pending<LossSums>> sums;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    DistillationHead block = call;
    block.student.targets = targets.row_slice(first, count);
    block.student.hidden = call.student.hidden.row_slice(first, count);
    block.student.dhidden = slice(call.student.dhidden, first, count);
    block.boundary = TeacherOutput::logits;
    block.teacher_logits = slice(moved_memory.tensor(), 0, count);
    block.sampled = slice(call.sampled, first, count);
    if (may_have_targets(ops, block.student.targets)) {  // else the call only clears dhidden
      const Tensor logits =
          computed ? slice(logits_memory.tensor(), 0, count) : slice(call.teacher_logits, first, count);
      if (computed && call.teacher_head != nullptr) {
        ops.run(Linear{.x = call.teacher_hidden.row_slice(first, count), .w = call.teacher_head, .y = logits});
        if (call.teacher_softcap > 0) ops.run(Softcap{.x = logits, .cap = call.teacher_softcap});
      }
      vocabularies.move(count, logits, block.teacher_logits);
    }
    sums.push_back(ops.run(DistillationLoss{.head = block, .part = student}));
  }
  return Pending<LossSums>(std::move(sums));
}

}  // namespace

Pending<LossSums> cross_entropy_loss(Tape& tape, const Var& hidden, Parameter& head, const HeadLoss& loss) {
  return cross_entropy_loss(tape, hidden, head, loss, VocabularyPart());
}

Pending<LossSums> cross_entropy_loss(Tape& tape, const Var& hidden, Parameter& head, const HeadLoss& loss,
                                     const VocabularyPart& part) {
  check_loss("cross_entropy_loss", tape.compute(), hidden.value(), head, loss);
  Block dhidden;
  const CrossEntropyHead call = student_call(tape, hidden, head, loss, dhidden);
  const Pending<LossSums> sums = tape.ops().run(CrossEntropyLoss{.head = call, .part = part});
  record_loss(tape, hidden, dhidden);
  return sums;
}

Pending<LossSums> distillation_loss(Tape& tape, const Var& hidden, Parameter& head, const TeacherSignal& teacher,
                                    const DistillationTerms& terms, const HeadLoss& loss) {
  return distillation_loss(tape, hidden, head, teacher, terms, loss, VocabularyParts());
}

Pending<LossSums> distillation_loss(Tape& tape, const Var& hidden, Parameter& head, const TeacherSignal& teacher,
                                    const DistillationTerms& terms, const HeadLoss& loss,
                                    const VocabularyParts& parts) {
  const VocabularyPart& student = parts.student;
  check_loss("distillation_loss", tape.compute(), hidden.value(), head, loss);
  check_teacher(hidden.value(), head, teacher, terms, loss, student);
  Block dhidden;
  DistillationHead call;
  call.student = student_call(tape, hidden, head, loss, dhidden);
  call.boundary = teacher.boundary;
  if (teacher.boundary == TeacherOutput::hidden) {
    call.teacher_hidden = teacher.hidden.value();
    call.teacher_head = packed_part(*teacher.head, tape.ops(), teacher.hidden.value().dtype(), PackFor::forward);
  }
  call.teacher_logits = teacher.logits;
  call.teacher_values = teacher.values;
  call.teacher_indices = teacher.indices;
  call.teacher_rest = teacher.rest;
  call.teacher_sampled = teacher.sampled;
  call.sampled = loss.sampled;
  call.ratio_cap = terms.ratio_cap;
  call.teacher_vocabulary = teacher.vocabulary;
  call.teacher_softcap = teacher.softcap;
  call.shared_vocabulary = terms.shared_vocabulary;
  call.divergence = terms.divergence;
  call.temperature = terms.temperature;
  call.alpha = terms.alpha;
  call.beta = terms.beta;
  const auto compute = [&]() -> Pending<LossSums> {
    if (student.group == nullptr || !is_dense(teacher.boundary)) {
      return tape.ops().run(DistillationLoss{.head = call, .part = student});
    }
    const TwoVocabularies vocabularies(student, parts.teacher, terms.shared_vocabulary);
    if (vocabularies.line_up()) return tape.ops().run(DistillationLoss{.head = call, .part = student});
    return distillation_of_moved_logits(tape, call, student, vocabularies);
  };
  const Pending<LossSums> sums = compute();
  record_loss(tape, hidden, dhidden);
  return sums;
}

void top_k(Tape& tape, const Tensor& logits, const Tensor& values, const Tensor& indices, const VocabularyPart& part,
           std::int64_t tokens) {
  check_top_k(logits, values, indices);
  const OperatorTable& ops = tape.ops();
  if (part.group == nullptr)
    return ops.run(TopK{.logits = logits, .values = values, .indices = indices, .columns = tokens});
  Communicator& group = *part.group;
  const std::int64_t rows = values.rows();  // a part without tokens has zero rows
  const std::int64_t k = values.columns();
  const std::int64_t among = tokens == 0 ? part.vocabulary : tokens;
  assert(k <= among && part.first == rank_part(part.vocabulary, group).first);
  const auto own_tokens = [&](std::int64_t rank) {
    const RankPart whole = rank_part(part.vocabulary, group.size(), rank);
    return std::clamp<std::int64_t>(among - whole.first, 0, whole.count);
  };
  // Finds the k best of each rank, then the k best among them. Candidates are in rank order and, among equals, in token
  // order, so that the first of equals is the lowest token here too.
  const std::int64_t own = std::min(k, own_tokens(group.rank()));
  std::vector<BlockTransfer> sends;
  std::vector<BlockTransfer> receives;
  std::int64_t width = 0;
  for (std::int64_t peer = 0; peer < group.size(); ++peer) {
    const std::int64_t count = std::min(k, own_tokens(peer));
    sends.push_back({peer, {0, rows, 0, own}});
    receives.push_back({peer, {0, rows, width, count}});
    width += count;
  }
  const Block best = tape.scratch({rows, own}, DType::f32);
  const Block best_tokens = tape.scratch({rows, own}, DType::i32);
  const Block candidates = tape.scratch({rows, width}, DType::f32);
  const Block candidate_tokens = tape.scratch({rows, width}, DType::i32);
  if (own > 0)
    ops.run(TopK{.logits = logits,
                 .values = best.tensor(),
                 .indices = best_tokens.tensor(),
                 .columns = own_tokens(group.rank())});
  ops.run(
      ShiftIds{.ids = best_tokens.tensor(), .by = part.first, .limit = part.vocabulary, .out = best_tokens.tensor()});
  group.exchange(best.tensor(), sends, candidates.tensor(), receives);
  group.exchange(best_tokens.tensor(), sends, candidate_tokens.tensor(), receives);
  ops.run(TopK{.logits = candidates.tensor(), .values = values, .indices = indices});
  ops.run(PickColumns{.from = candidate_tokens.tensor(), .columns = indices, .to = indices});
}

}  // namespace maestro
