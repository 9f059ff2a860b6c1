// SPDX-License-Identifier: Apache-2.0
// A teacher in its student's section: the ports that its outputs arrive at, and its output layer if the outputs are
// hidden states.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/ops/functions.hpp"
#include "sections/distill/teacher_head.hpp"
#include "sections/section.hpp"

namespace maestro {

/// A teacher's outputs for some rows of a micro-batch.
struct TeacherRows {
  Var hidden, logits, values, indices, rest, sampled;  ///< tensors by boundary
};

class TeacherInput {
 public:
  /// `prefix` begins the names of its ports. `among_others`: samples may have rows only of other teachers, so over
  /// context ranks every rank receives all rows. Throws JobError if teacher and layout do not fit, or its weights
  /// cannot be loaded.
  TeacherInput(const SectionContext& context, const TeacherModel& model, std::string prefix, bool among_others);

  [[nodiscard]] const TeacherModel& model() const { return model_; }
  /// Returns the axis of the rows that it sends.
  [[nodiscard]] Axis axis() const { return model_.reading == Reading::tokens ? Axis::answers : Axis::tokens; }
  [[nodiscard]] std::vector<Port> ports() const;
  /// Returns whether the teacher's cross-entropy is known: it needs the target's logit, which may not be among the k.
  [[nodiscard]] bool knows_cross_entropy() const { return !names_tokens(model_.boundary); }
  /// Returns whether a divergence from the teacher is known: it needs more than the target's log-probability.
  [[nodiscard]] bool knows_divergence() const { return model_.boundary != TeacherOutput::sampled; }
  /// Returns the log-probabilities of the targets in host memory, by boundary = sampled.
  [[nodiscard]] Tensor sampled(const Inputs& inputs) const { return inputs.host(prefix_ + "_sampled"); }
  /// Returns the FLOPs of the teacher's output layer if it is kept here.
  [[nodiscard]] double flops(const SampleShape& sample) const;
  /// Returns the bytes of that layer on this rank.
  [[nodiscard]] double head_bytes() const;
  /// Returns the samples of the micro-batch that the teacher sends rows for.
  [[nodiscard]] std::vector<bool> taken(const Inputs& inputs) const { return inputs.taken(ports().front().name); }

  /// Returns the rows for its samples: all rows of the context part, or of the micro-batch if it is among others.
  [[nodiscard]] TeacherRows received(Tape& tape, const Inputs& inputs) const;
  /// Returns the rows in the losses' form; valid while `rows` live.
  [[nodiscard]] TeacherSignal signal(const TeacherRows& rows);

 private:
  [[nodiscard]] Var all_rows(Tape& tape, const Inputs& inputs, const char* output) const;

  TeacherModel model_;
  ParallelContext parallel_;
  std::string prefix_;
  bool replicated_;                  // every rank receives all rows
  std::optional<TeacherHead> head_;  // boundary = hidden, in the last stage
};

/// Returns the rows of `from` in `ranges`, ascending: `from` itself if these are all, otherwise a copy, with a gradient
/// for `from` if `from` needs a gradient.
[[nodiscard]] Var chosen_rows(Tape& tape, const Var& from, std::span<const RowRange> ranges);
[[nodiscard]] TeacherRows chosen_rows(Tape& tape, const TeacherRows& from, std::span<const RowRange> ranges);

}  // namespace maestro
