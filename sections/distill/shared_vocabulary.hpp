// SPDX-License-Identifier: Apache-2.0
// The columns of a student's and a teacher's logits that mean the same tokens.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// A distillation's teacher or student.
struct VocabularySide {
  std::string section;
  std::int64_t rows = 0;  ///< rows of the output layer
  std::string tokenizer;  ///< name of the tokenizer it was made with; empty: unknown
};

struct SharedVocabulary {
  std::int64_t columns = 0;  ///< number of first tokens that both distributions cover
  std::string note;          ///< line for the user if rows are left out; otherwise empty
};

/// Output layers often have more rows than tokens, so models with the same tokenizer may differ in size. The corpus'
/// vocabulary `corpus_tokens` (0: unknown) is the number of rows with a token. Throws JobError that names both numbers
/// if a model has fewer rows than the corpus has tokens, if the sizes differ and the corpus' size is unknown, and if
/// the tokenizers of both sides, or of a side and the corpus, are recorded and differ.
[[nodiscard]] SharedVocabulary shared_vocabulary(const VocabularySide& student, const VocabularySide& teacher,
                                                 std::int64_t corpus_tokens, const std::string& corpus_tokenizer);

/// Throws JobError if both Hugging Face folders hold a tokenizer.json and a token below `rows`, the smaller vocabulary,
/// differs. Empty paths are skipped.
void check_tokenizer_files(const std::string& student_folder, const std::string& teacher_folder, std::int64_t rows);

}  // namespace maestro
