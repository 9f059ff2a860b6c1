// SPDX-License-Identifier: Apache-2.0
// The teacher's output layer, held frozen inside the student's section: hidden states cross the boundary instead of
// logits, which are (vocabulary / width) times larger.
#pragma once

#include <string>

#include "runtime/job/decoder_config.hpp"
#include "runtime/ops/parameters.hpp"
#include "sections/section.hpp"

namespace maestro {

/// The student's description of a teacher.
struct TeacherModel {
  std::string section = "teacher";  ///< name in the job; its random values are derived from it
  DecoderConfig decoder;
  DType precision = DType::f32;  ///< of the teacher's arithmetic, and so of its hidden states
  std::string weights;           ///< Hugging Face folder; empty: random
  std::string tokenizer;         ///< empty: unknown
  bool recorded = false;         ///< on file: no model is there, and of `decoder` only the vocabulary is meant
  TeacherOutput boundary = TeacherOutput::hidden;
  std::int64_t top_k = 64;  ///< of boundary = top_k and top_k_rest
  double weight = 1;        ///< its share of the divergence among the teachers of a sample; their ratio counts
};

/// TH-1 (same values): the layer's values are bitwise those of the teacher section's own output layer, or of the rank's
///       part of it.
class TeacherHead {
 public:
  /// Builds the layer from the job's seed, or loads it (lm_head.weight, or the token embedding when tied), and packs it
  /// for the teacher's precision. A rank of several holds its part of the teacher's vocabulary. Throws JobError when
  /// the folder does not hold this teacher.
  TeacherHead(const SectionContext& context, const TeacherModel& teacher);

  /// (Vt of the rank, Ct); packed for the teacher's precision only.
  [[nodiscard]] Parameter& parameter() { return *head_; }

 private:
  Parameters parameters_;
  Parameter* head_;
};

}  // namespace maestro
