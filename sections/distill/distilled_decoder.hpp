// SPDX-License-Identifier: Apache-2.0
// A student decoder that learns from the corpus and from teachers at once.
//
// Inputs  tokens (M) i32, targets (M) i32 (-1: ignored), and of each teacher by its boundary, where X is "teacher", or
//         the teacher's name if there are several
//   hidden   X_hidden       (M, teacher width) act of the teacher's precision; the teacher's output layer is kept here,
//                           frozen
//   logits   X_logits       (M, teacher vocabulary) f32
//   top_k    X_top_values   (M, k) f32 and X_top_indices (M, k) i32
//   top_k_rest  the same, with log-probabilities as values, and X_rest (M, 1) f32, that of all other tokens; on
//                           processors alone
// Of several teachers each may have rows for some of the samples only (Port::chosen). The divergence of a row is the
// mean of those of its teachers by their weights.
// No outputs; reports loss, ce, kl and, but for top_k and top_k_rest, teacher_ce; with several teachers also kl_X and
// teacher_ce_X of each, over the rows that it teaches. Formulas: runtime/ops/distillation_options.hpp. Over ranks the
// teachers' inputs are spread as decoder_trunk spreads its outputs, with this section's layout. In pipeline stages
// tokens go to the first and all else to the last, which reports; see decoder_section.hpp.
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
    DecoderConfig decoder;  ///< of the student
    Divergence divergence = Divergence::forward_kl;
    double temperature = 1;
    double alpha = 0.5;
    double beta = 0.5;    ///< of js
    std::string weights;  ///< the student's own start, for comparing tokenizers; loading is the host's affair
    std::vector<TeacherModel> teachers = std::vector<TeacherModel>(1);
    DataShape data;
    /// The student's shape keys, divergence, temperature, alpha, beta and weights; `teachers` and `data` stay as they
    /// are by default. Throws JobError.
    static Options read(const JobTable& student);
  };
  /// Shape, precision and weights of the teacher from its own table in the job. Throws JobError.
  static TeacherModel read_teacher(const JobTable& teacher);

  /// Throws JobError for a decoder that does not fit the data, options out of range, vocabularies or tokenizers that do
  /// not match, or a teacher whose weights cannot be loaded.
  DistilledDecoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// With boundary = hidden the teacher's output layer counts too, although it has no backward pass. Of several
  /// teachers all count, as for a sample that learns from all of them.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;
  /// The teachers' output layers, where they are kept here.
  [[nodiscard]] double extra_bytes() const override;
  [[nodiscard]] std::vector<std::string> notes() const override;

 private:
  /// A pass's rows of the context part.
  struct Rows {
    Var state;                          // hidden states behind the body
    Var targets;                        // (M_c, 1)
    std::vector<TeacherRows> teachers;  // by number
    double loss_scale = 0;
  };
  [[nodiscard]] double teacher_flops(const SampleShape& sample) const;
  /// Returns a single lesson of all rows for a single teacher.
  [[nodiscard]] std::vector<Lesson> lessons(const Inputs& inputs) const;
  /// Adds the losses of a lesson's rows for each of its teachers.
  void learn(Tape& tape, const Rows& rows, const Lesson& lesson, LessonSums& sums);

  Options options_;
  std::int64_t shared_vocabulary_ = 0;
  std::vector<std::string> notes_;
  std::deque<TeacherInput> teachers_;  // they do not move
};

}  // namespace maestro
