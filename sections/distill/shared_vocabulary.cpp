#include "sections/distill/shared_vocabulary.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "runtime/core/result.hpp"

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

std::optional<std::string> content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
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
  if (student.rows == corpus_tokens && teacher.rows == corpus_tokens) return {corpus_tokens, ""};
  return {corpus_tokens, sizes(student, teacher) + "; the corpus has " + std::to_string(corpus_tokens) +
                             " tokens, so rows from " + std::to_string(corpus_tokens) +
                             " on are taken as padding and left out of both distributions"};
}

void check_tokenizer_files(const std::string& student_folder, const std::string& teacher_folder) {
  if (student_folder.empty() || teacher_folder.empty()) return;
  const std::filesystem::path student_path = std::filesystem::path(student_folder) / "tokenizer.json";
  const std::filesystem::path teacher_path = std::filesystem::path(teacher_folder) / "tokenizer.json";
  const auto student = content(student_path);
  const auto teacher = content(teacher_path);
  if (!student || !teacher || *student == *teacher) return;
  throw JobError(student_path.string() + " and " + teacher_path.string() + " differ; distillation needs the same " +
                 "tokens on both sides, so choose models of one tokenizer");
}

}  // namespace maestro
