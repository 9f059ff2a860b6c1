// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/shared_vocabulary.hpp"

#include <filesystem>

#include "runtime/core/result.hpp"
#include "runtime/model/hf_tokenizer.hpp"

namespace maestro {

namespace {

void check_rows(const VocabularySide& side, std::int64_t corpus_tokens) {
  if (side.rows >= corpus_tokens) return;
  throw JobError(side.section + ": vocabulary = " + std::to_string(side.rows) + " is smaller than the corpus' " +
                 std::to_string(corpus_tokens) + " tokens; set it to " + std::to_string(corpus_tokens) + " or more");
}

void check_same_tokenizer(const std::string& first, const std::string& first_owner, const std::string& second,
                          const std::string& second_owner) {
  if (first.empty() || second.empty() || first == second) return;
  throw JobError(first_owner + " uses tokenizer '" + first + "' and " + second_owner + " uses '" + second +
                 "'; distillation needs the same tokens on both sides, so choose models of one tokenizer");
}

std::string sizes(const VocabularySide& student, const VocabularySide& teacher) {
  return student.section + " has vocabulary = " + std::to_string(student.rows) + " and " + teacher.section +
         " has vocabulary = " + std::to_string(teacher.rows);
}

/// Returns the rows of a side that no token of the corpus has; empty: none.
std::string rows_without_token(const VocabularySide& side, std::int64_t corpus_tokens) {
  if (side.rows == corpus_tokens) return "";
  return "rows " + std::to_string(corpus_tokens) + " to " + std::to_string(side.rows - 1) + " of " + side.section;
}

}  // namespace

SharedVocabulary shared_vocabulary(const VocabularySide& student, const VocabularySide& teacher,
                                   std::int64_t corpus_tokens, const std::string& corpus_tokenizer) {
  check_same_tokenizer(student.tokenizer, student.section, teacher.tokenizer, teacher.section);
  check_same_tokenizer(student.tokenizer, student.section, corpus_tokenizer, "the corpus");
  check_same_tokenizer(teacher.tokenizer, teacher.section, corpus_tokenizer, "the corpus");
  if (corpus_tokens == 0) {
    if (student.rows == teacher.rows) return {student.rows, ""};
    throw JobError(sizes(student, teacher) + ", and which rows are padding is not known without the corpus' " +
                   "vocabulary; make them equal");
  }
  check_rows(student, corpus_tokens);
  check_rows(teacher, corpus_tokens);
  const std::string own = rows_without_token(student, corpus_tokens);
  const std::string other = rows_without_token(teacher, corpus_tokens);
  if (own.empty() && other.empty()) return {corpus_tokens, ""};
  return {corpus_tokens, sizes(student, teacher) + "; the corpus has " + std::to_string(corpus_tokens) +
                             " tokens and none for " + own + (own.empty() || other.empty() ? "" : " and ") + other +
                             ": the divergence leaves them out" +
                             (own.empty() ? "" : ", the cross-entropy has all rows of " + student.section)};
}

void check_tokenizer_files(const std::string& student_folder, const std::string& teacher_folder, std::int64_t rows) {
  if (student_folder.empty() || teacher_folder.empty()) return;
  const std::filesystem::path student = std::filesystem::path(student_folder) / "tokenizer.json";
  const std::filesystem::path teacher = std::filesystem::path(teacher_folder) / "tokenizer.json";
  std::error_code failure;
  if (!std::filesystem::exists(student, failure) || !std::filesystem::exists(teacher, failure)) return;
  const Status same = check_same_tokens(student, teacher, rows);
  if (!same) throw JobError(same.error().message + "; distillation needs the same tokens on both sides");
}

}  // namespace maestro
