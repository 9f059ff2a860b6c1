// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class OpenTokenizer : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  /// GPT-2's pair of files: tokens a, b, ab and a space before a.
  void write_pair() const {
    write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "<|endoftext|>": 5})");
    write("merges.txt", "#version: 0.2\r\na b\r\nĠ a\n");
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) /
      (std::string("open_tokenizer_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

constexpr const char* small = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";

TEST_F(OpenTokenizer, a_folder_is_opened_by_its_tokenizer_json_first) {
  write_pair();
  write("tokenizer.json", small);
  EXPECT_EQ(open_tokenizer(folder_).value_or_throw()->name(), (folder_ / "tokenizer.json").string());
  EXPECT_EQ(open_tokenizer(folder_ / "tokenizer.json").value_or_throw()->vocabulary(), 1);
}

TEST_F(OpenTokenizer, the_pair_of_gpt_2_is_a_byte_level_tokenizer) {
  write_pair();
  for (const fs::path& at : {folder_, folder_ / "vocab.json", folder_ / "merges.txt"}) {
    const auto tokenizer = open_tokenizer(at).value_or_throw();
    EXPECT_THAT(tokenizer->encode("ab a<|endoftext|>"), ElementsAre(2, 4, 5));
    EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 4, 5}, true), "ab a");
  }
  write("merges.txt", "a x\n");
  EXPECT_THAT(open_tokenizer(folder_).error().message,
              AllOf(HasSubstr((folder_ / "vocab.json").string()), HasSubstr("model.merges[0] needs the token \"x\"")));
}

TEST_F(OpenTokenizer, a_folder_without_a_tokenizer_is_not_found) {
  const auto empty = open_tokenizer(folder_);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::not_found);
  EXPECT_THAT(empty.error().message, AllOf(HasSubstr(folder_.string()), HasSubstr("tokenizer.json")));
  write("vocab.json", "{}");
  EXPECT_EQ(open_tokenizer(folder_).error().code, ErrorCode::not_found) << "half of a pair";
  const auto missing = open_tokenizer(folder_ / "none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("none does not exist"), HasSubstr("\"bytes\"")));
}

TEST_F(OpenTokenizer, a_name_of_a_job_is_bytes_a_folder_or_a_file) {
  write("tokenizer.json", small);
  EXPECT_EQ(make_tokenizer("")->name(), "bytes");
  EXPECT_EQ(make_tokenizer("bytes")->vocabulary(), 256);
  EXPECT_EQ(make_tokenizer(folder_.string())->vocabulary(), 1);
  EXPECT_THROW((void)make_tokenizer((folder_ / "none").string()), JobError);
}

}  // namespace
}  // namespace maestro
