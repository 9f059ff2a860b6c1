// SPDX-License-Identifier: Apache-2.0
// A student decoder that learns from the corpus and from teachers at once.
//
// Inputs  tokens (M) i32, targets (M) i32 (-1: ignored), and for each teacher by its boundary (X is "teacher", or the
//         teacher's name if there are several)
//   hidden   X_hidden       (M, teacher width) act of the teacher's precision; the teacher's output layer is kept here,
//                           frozen
//   logits   X_logits       (M, teacher vocabulary) f32
//   top_k    X_top_values   (M, k) f32 and X_top_indices (M, k) i32
//   top_k_rest  the same, with log-probabilities as values, and X_rest (M, 1) f32, for all other tokens;
//                           on CPUs only
//   sampled  X_sampled      (M, 1) f32, the log-probability of each target: at the temperature in training, at 1 in
//                           validation
// and, for policy_gradient with a ratio, sampled (M, 1) f32, the log-probability with which each target was drawn.
// A teacher with tokens of its own for images sends only the rows of answers (A, ...), A <= M.
// If there are several teachers, each may have rows for only some samples (Port::chosen). A row's divergence is the
// mean over its teachers, by their weights. No outputs; reports loss, ce, kl and, but for top_k and top_k_rest,
// teacher_ce; with several teachers also kl_X and teacher_ce_X, over the rows that a teacher teaches. If a generator
// makes samples, training passes report made rows and read rows apart (lesson_sums.hpp). Made rows learn from the
// teachers only: alpha is 1. With boundary = sampled the loss of read rows is their cross-entropy. Formulas:
// runtime/ops/distillation_options.hpp. Over ranks the teachers' inputs are spread as decoder_trunk spreads its
// outputs, with this section's layout. In pipeline stages tokens go to the first and all else to the last, which
// reports; see decoder_section.hpp.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/ops/distillation_options.hpp"
#include "sections/decoder/decoder_section.hpp"
#include "sections/distill/lesson_sums.hpp"
#include "sections/distill/lessons.hpp"
#include "sections/distill/teacher_input.hpp"

namespace maestro {

class DistilledDecoder final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;  ///< decoder of the student
    Divergence divergence = Divergence::forward_kl;
    double temperature = 1;
    double alpha = 0.5;
    double beta = 0.5;             ///< teacher's weight in js
    bool policy_gradient = false;  ///< loss of made rows; false: the divergence
    double ratio_cap = 2;          ///< largest ratio of policy_gradient; 0: none
    bool generates = false;        ///< whether a generator makes samples for the section
    std::string weights;  ///< student's initial weights, for comparing tokenizers; the section's host loads them
    std::vector<TeacherModel> teachers = std::vector<TeacherModel>(1);
    DataShape data;
    /// Reads the student's shape keys, loss, ratio_cap, divergence, temperature, alpha, beta and weights; the others
    /// keep their defaults. Throws JobError.
    static Options read(const JobTable& student);
  };
  /// Reads shape, precision and weights of the teacher from its table in the job. Throws JobError.
  static TeacherModel read_teacher(const JobTable& teacher);

  /// Throws JobError for a decoder that does not fit the data, options out of range, vocabularies or tokenizers that do
  /// not match, or a teacher whose weights cannot be loaded.
  DistilledDecoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// Returns the cost. With boundary = hidden the teacher's output layer counts too, although it is not trained.
  /// Several teachers all count, as for a sample that learns from all of them.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;
  /// Returns the bytes of the teachers' output layers that are kept here.
  [[nodiscard]] double extra_bytes() const override;
  [[nodiscard]] std::vector<std::string> notes() const override;

 private:
  /// Rows of a pass in the context part.
  struct Rows {
    Var state;                          // hidden states after the body
    Var targets;                        // (M_c, 1)
    Var sampled;                        // (M_c, 1); with a ratio
    std::vector<TeacherRows> teachers;  // rows by teacher number
    double loss_scale = 0;
  };
  [[nodiscard]] bool has_ratio() const { return options_.policy_gradient && options_.ratio_cap > 0; }
  [[nodiscard]] double teacher_flops(const SampleShape& sample) const;
  /// Returns a single lesson with all rows for a single teacher.
  [[nodiscard]] std::vector<Lesson> lessons(const Inputs& inputs) const;
  /// Adds the losses of a lesson's rows for each of its teachers.
  void learn(Tape& tape, const Inputs& inputs, const Rows& rows, const Lesson& lesson, LessonSums& sums);
  /// Returns the cross-entropy of a teacher with boundary = sampled, summed over a lesson's rows.
  [[nodiscard]] LossSums teacher_sums(const Inputs& inputs, const Lesson& lesson, const Lesson::Teacher& teacher) const;

  Options options_;
  std::int64_t shared_vocabulary_ = 0;
  std::vector<std::string> notes_;
  std::deque<TeacherInput> teachers_;  // with stable addresses
};

}  // namespace maestro
