// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/shared_vocabulary.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/core/result.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

std::string error_of(std::int64_t student, std::int64_t teacher, std::int64_t corpus) {
  try {
    (void)shared_vocabulary({"student", student, ""}, {"teacher", teacher, ""}, corpus, "");
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SharedVocabulary, equal_sizes_share_everything_without_a_note) {
  const auto shared = shared_vocabulary({"student", 256, ""}, {"teacher", 256, ""}, 256, "bytes");
  EXPECT_EQ(shared.columns, 256);
  EXPECT_EQ(shared.note, "");
  EXPECT_EQ(shared_vocabulary({"student", 300, ""}, {"teacher", 300, ""}, 0, "").columns, 300);
}

TEST(SharedVocabulary, models_of_more_rows_than_tokens_share_the_corpus_tokens_and_the_rows_are_named) {
  const auto shared = shared_vocabulary({"student", 50304, ""}, {"teacher", 50257, ""}, 50257, "");
  EXPECT_EQ(shared.columns, 50257);
  EXPECT_EQ(
      shared.note,
      "student has vocabulary = 50304 and teacher has vocabulary = 50257; the corpus has 50257 tokens and none for "
      "rows 50257 to 50303 of student: the divergence leaves them out, the cross-entropy has all rows of student");
  EXPECT_EQ(
      shared_vocabulary({"student", 256, ""}, {"teacher", 320, ""}, 256, "").note,
      "student has vocabulary = 256 and teacher has vocabulary = 320; the corpus has 256 tokens and none for rows "
      "256 to 319 of teacher: the divergence leaves them out");
}

TEST(SharedVocabulary, a_model_smaller_than_the_corpus_is_refused_with_both_numbers) {
  EXPECT_EQ(error_of(200, 256, 256),
            "student: vocabulary = 200 is smaller than the corpus' 256 tokens; set it to 256 or more");
  EXPECT_EQ(error_of(256, 255, 256),
            "teacher: vocabulary = 255 is smaller than the corpus' 256 tokens; set it to 256 or more");
}

TEST(SharedVocabulary, different_sizes_without_a_corpus_to_tell_padding_are_refused) {
  EXPECT_NE(error_of(256, 320, 0).find("student has vocabulary = 256 and teacher has vocabulary = 320"),
            std::string::npos);
}

TEST(SharedVocabulary, different_tokenizers_are_refused) {
  const auto share = [](const char* student, const char* teacher, const char* corpus) {
    return shared_vocabulary({"student", 256, student}, {"teacher", 256, teacher}, 256, corpus).columns;
  };
  EXPECT_EQ(share("bytes", "bytes", "bytes"), 256);
  EXPECT_EQ(share("", "bytes", ""), 256);
  EXPECT_THROW((void)share("bytes", "gpt2", ""), JobError);
  EXPECT_THROW((void)share("", "gpt2", "bytes"), JobError);
  EXPECT_THROW((void)share("gpt2", "", "bytes"), JobError);
}

/// Compares two folders with these tokenizer.json below `rows`.
std::string compared(const std::string& student, const std::string& teacher, std::int64_t rows = 3) {
  const TemporaryFolder first, second;
  std::ofstream(first.path() / "tokenizer.json") << student;
  if (!teacher.empty()) std::ofstream(second.path() / "tokenizer.json") << teacher;
  try {
    check_tokenizer_files(first.path().string(), second.path().string(), rows);
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SharedVocabulary, tokenizer_files_of_two_folders_must_give_every_id_the_same_token) {
  const std::string one = R"({"added_tokens": [{"id": 2, "content": "<end>"}], "model": {"vocab": {"a": 0, "b": 1}}})";
  const std::string indented =
      "{\n  \"model\": {\"merges\": [],\n \"vocab\": {\"b\": 1, \"a\": 0}},\n"
      " \"added_tokens\": [{\"content\": \"<end>\", \"id\": 2, \"special\": true}]}";
  EXPECT_EQ(compared(one, one), "no error");
  EXPECT_EQ(compared(one, indented), "no error");
  EXPECT_EQ(compared(one, ""), "no error");  // the teacher lacks a tokenizer: nothing to compare
  EXPECT_EQ(compared(one, R"({"model": {"vocab": [["a", 0.5], ["b", 0.25], ["<end>", 0]]}})"), "no error");  // Unigram
  const std::string other =
      R"({"added_tokens": [{"id": 2, "content": "<pad>"}], "model": {"vocab": {"a": 0, "b": 1}}})";
  const std::string error = compared(one, other);
  EXPECT_NE(error.find("differ: token 2 is \"<end>\" in the first and \"<pad>\" in the second"), std::string::npos)
      << error;
  EXPECT_EQ(compared(one, other, 2), "no error");  // above the smaller vocabulary
  EXPECT_NE(compared(one, R"({"model": {"vocab": {"a": 0}}})", 3).find("token 1 is \"b\" in the first and missing"),
            std::string::npos);
  EXPECT_NE(compared(one, R"({"a": 1})").find("model is missing"), std::string::npos) << compared(one, R"({"a": 1})");
}

}  // namespace
}  // namespace maestro::testing
