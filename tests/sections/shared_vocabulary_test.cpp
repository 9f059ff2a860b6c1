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

TEST(SharedVocabulary, sizes_that_differ_by_padding_share_the_corpus_tokens_and_are_noted) {
  const auto shared = shared_vocabulary({"student", 50304, ""}, {"teacher", 50257, ""}, 50257, "");
  EXPECT_EQ(shared.columns, 50257);
  EXPECT_EQ(shared.note,
            "student has vocabulary = 50304 and teacher has vocabulary = 50257; the corpus has 50257 tokens, so rows "
            "from 50257 on are taken as padding and left out of both distributions");
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

TEST(SharedVocabulary, tokenizer_files_of_two_folders_must_be_equal) {
  const TemporaryFolder student, teacher;
  const auto check = [&] { check_tokenizer_files(student.path().string(), teacher.path().string()); };
  std::ofstream(student.path() / "tokenizer.json") << "{\"a\": 1}";
  EXPECT_NO_THROW(check());  // the teacher has none: nothing to compare
  std::ofstream(teacher.path() / "tokenizer.json") << "{\"a\": 1}";
  EXPECT_NO_THROW(check());
  std::ofstream(teacher.path() / "tokenizer.json") << "{\"a\": 2}";
  EXPECT_THROW(check(), JobError);
  EXPECT_NO_THROW(check_tokenizer_files("", teacher.path().string()));
}

}  // namespace
}  // namespace maestro::testing
