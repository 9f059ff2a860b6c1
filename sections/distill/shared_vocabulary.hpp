// SPDX-License-Identifier: Apache-2.0
// Which columns of a student's and a teacher's logits mean the same tokens.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// One side of a distillation.
struct VocabularySide {
  std::string section;
  std::int64_t rows = 0;  ///< of the output layer
  std::string tokenizer;  ///< name of the tokenizer it was made with; empty: not known
};

struct SharedVocabulary {
  std::int64_t columns = 0;  ///< both distributions are taken over the first `columns` tokens
  std::string note;          ///< one line for the user when rows are left out; empty otherwise
};

/// Output layers often have more rows than tokens, so models over one tokenizer may differ in size. The corpus'
/// vocabulary `corpus_tokens` (0: not known) is the number of rows with a token. Throws JobError that names both
/// numbers when a model has fewer rows than the corpus has tokens, when the sizes differ and the corpus' is not known,
/// and when the tokenizers of the two sides, or of a side and the corpus, are known to differ.
[[nodiscard]] SharedVocabulary shared_vocabulary(const VocabularySide& student, const VocabularySide& teacher,
                                                 std::int64_t corpus_tokens, const std::string& corpus_tokenizer);

/// Throws JobError when both Hugging Face folders hold a tokenizer.json and a token below `rows`, the smaller
/// vocabulary, differs. Empty paths are passed over.
void check_tokenizer_files(const std::string& student_folder, const std::string& teacher_folder, std::int64_t rows);

}  // namespace maestro
