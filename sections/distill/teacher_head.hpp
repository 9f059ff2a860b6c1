// SPDX-License-Identifier: Apache-2.0
// The teacher's output layer, held frozen inside the student's section: hidden states cross the boundary instead of
// logits, which are (vocabulary / width) times larger.
#pragma once

#include <string>

#include "runtime/model/decoder_config.hpp"
#include "runtime/ops/parameters.hpp"
#include "sections/section.hpp"

namespace maestro {

/// The student's description of a teacher.
struct TeacherModel {
  std::string section = "teacher";  ///< name in the job; seeds its random values
  DecoderConfig decoder;
  DType precision = DType::f32;  ///< precision of the teacher's arithmetic, and so of its hidden states
  std::string weights;           ///< Hugging Face folder; empty: random
  std::string tokenizer;         ///< empty: unknown
  bool recorded = false;         ///< recorded: without a model here, and only `decoder.vocabulary` is set
  TeacherOutput boundary = TeacherOutput::hidden;
  std::int64_t top_k = 64;  ///< k of boundary = top_k and top_k_rest
  /// How it reads the samples. With Reading::tokens it sends only the rows that have a target (Axis::answers).
  Reading reading = Reading::own;
  double weight = 1;  ///< share of the divergence among the teachers of a sample, by ratio
};

/// TH-1 (same values): the layer's values are bitwise the teacher section's output layer, or the rank's part of it.
class TeacherHead {
 public:
  /// Builds the layer from the job's seed, or loads it (lm_head.weight, or the token embedding if tied), and packs it
  /// for the teacher's precision. A rank of several holds its part of the teacher's vocabulary. Throws JobError if the
  /// folder does not hold this teacher.
  TeacherHead(const SectionContext& context, const TeacherModel& teacher);

  /// Returns (Vt of the rank, Ct), packed only for the teacher's precision.
  [[nodiscard]] Parameter& parameter() { return *head_; }

 private:
  Parameters parameters_;
  Parameter* head_;
};

}  // namespace maestro
