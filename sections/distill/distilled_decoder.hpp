// SPDX-License-Identifier: Apache-2.0
// A student decoder that learns from the corpus and from a teacher at once.
//
// Inputs  tokens (M) i32, targets (M) i32 (-1: ignored), and by boundary
//   hidden   teacher_hidden       (M, teacher width) act of the teacher's precision; the teacher's output layer is kept
//                                 here, frozen
//   logits   teacher_logits       (M, teacher vocabulary) f32
//   top_k    teacher_top_values   (M, k) f32 and teacher_top_indices (M, k) i32
//   top_k_rest  the same, with log-probabilities as values, and teacher_rest (M, 1) f32, that of all other tokens;
//                                 on processors alone
// No outputs; reports loss, ce, kl and, but for top_k and top_k_rest, teacher_ce. Formulas:
// runtime/ops/distillation_options.hpp. Over ranks teacher_* are spread as the teacher's decoder_trunk spreads them,
// with this section's layout. In pipeline stages tokens go to the first and all else to the last, which reports; see
// decoder_section.hpp.
#pragma once

#include <optional>

#include "runtime/ops/distillation_options.hpp"
#include "sections/decoder/decoder_section.hpp"
#include "sections/distill/shared_vocabulary.hpp"
#include "sections/distill/teacher_head.hpp"

namespace maestro {

class DistilledDecoder final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;  ///< of the student
    Divergence divergence = Divergence::forward_kl;
    double temperature = 1;
    double alpha = 0.5;
    double beta = 0.5;  ///< of js
    TeacherOutput boundary = TeacherOutput::hidden;
    std::int64_t top_k = 64;
    std::string weights;  ///< the student's own start, for comparing tokenizers; loading is the host's affair
    TeacherModel teacher;
    DataShape data;
    /// The student's shape keys, divergence, temperature, alpha, beta, boundary, top_k and weights; `teacher` and
    /// `data` stay as they are by default. Throws JobError.
    static Options read(const JobTable& student);
  };
  /// Shape, precision and weights of the teacher from its own table in the job. Throws JobError.
  static TeacherModel read_teacher(const JobTable& teacher);

  /// Throws JobError for a decoder that does not fit the data, options out of range, vocabularies or tokenizers that do
  /// not match, or a teacher whose weights cannot be loaded.
  DistilledDecoder(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// With boundary = hidden the teacher's output layer counts too, although it has no backward pass.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] LayerCosts layer_costs(const SampleShape& sample) const override;
  /// The teacher's output layer, where it is kept here.
  [[nodiscard]] double extra_bytes() const override;
  [[nodiscard]] std::vector<std::string> notes() const override;

 private:
  /// The teacher's outputs, for all rows of the context part.
  struct Received {
    Var hidden, logits, values, indices, rest;  // by boundary
  };
  /// FLOPs of the teacher's output layer where it is kept here.
  [[nodiscard]] double teacher_flops(const SampleShape& sample) const;
  [[nodiscard]] Received received(Tape& tape, const Inputs& inputs) const;
  [[nodiscard]] TeacherSignal signal(const Received& received);

  Options options_;
  SharedVocabulary vocabulary_;
  std::optional<TeacherHead> teacher_head_;  // boundary = hidden only
};

}  // namespace maestro
