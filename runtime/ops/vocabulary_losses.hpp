// SPDX-License-Identifier: Apache-2.0
// Output-layer losses and top-k over a vocabulary that is cut over the ranks of a group (Megatron-LM, Shoeybi et al.
// 2019, section 3). No rank ever holds logits beyond its tokens; per block of rows the ranks exchange a few numbers per
// row: maxima, sums of exponentials and the sums for divergences.
//
// All ranks of a group pass the same hidden, targets and settings, and get the same bits of every sum.
#pragma once

#include "runtime/ops/functions.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro {

/// Computes cross_entropy_loss(), with `head` (tokens of the part, C) cut over the vocabulary; hidden (M, C) act.
/// targets count tokens of the full vocabulary. The gradient of hidden is this rank's partial sum, which the backward
/// pass of all_gather_rows() adds up; the gradient of `head` is complete.
Pending<LossSums> cross_entropy_loss(Tape& tape, const Var& hidden, Parameter& head, const HeadLoss& loss,
                                     const VocabularyPart& part);

struct VocabularyParts {
  VocabularyPart student{};
  VocabularyPart teacher{};
};

/// Computes distillation_loss(), with `head` cut by `parts.student` and the teacher by `parts.teacher`, in the same
/// group: teacher.head holds the rows, or teacher.logits (M, columns) the columns, of row_part(Vt, size, rank).
/// teacher.hidden, and values and indices of the top k (tokens of the full vocabulary), are uncut on every rank.
/// teacher.vocabulary is Vt. `parts.teacher` is ignored unless the boundary is hidden or logits. If the vocabularies
/// differ in size, their parts below shared_vocabulary do not line up; then the ranks exchange the teacher's logits at
/// the edges, a block of rows at a time, in f32 for teacher.head and unchanged for teacher.logits.
Pending<LossSums> distillation_loss(Tape& tape, const Var& hidden, Parameter& head, const TeacherSignal& teacher,
                                    const DistillationTerms& terms, const HeadLoss& loss, const VocabularyParts& parts);

/// Finds the k largest logits per row among the first `tokens` (0: all) of the full vocabulary, from each rank's logits
/// (M, tokens of the part) f32. All ranks receive values (M, k) f32, descending, and indices (M, k) i32 in the full
/// vocabulary; ties: lower index first. k <= tokens. Working memory is the tape's scratch.
void top_k(Tape& tape, const Tensor& logits, const Tensor& values, const Tensor& indices, const VocabularyPart& part,
           std::int64_t tokens = 0);

}  // namespace maestro
