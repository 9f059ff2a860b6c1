// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

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
  /// Writes GPT-2's two files: tokens a, b, ab and a space before a.
  void write_pair() const {
    write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "<|endoftext|>": 5})");
    write("merges.txt", "#version: 0.2\r\na b\r\nĠ a\n");
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) /
      ("open_tokenizer_" + std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
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

/// Compared with transformers 5: OPT has such files.
TEST_F(OpenTokenizer, the_settings_of_the_pair_of_gpt_2_put_tokens_around_a_text) {
  write_pair();
  write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|endoftext|>"})");
  EXPECT_THAT(open_tokenizer(folder_).value_or_throw()->encode_text("ab a", true), ElementsAre(5, 2, 4));
  EXPECT_THAT(open_tokenizer(folder_).value_or_throw()->encode_text("<|endoftext|>ab", true), ElementsAre(5, 2));
  write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})");
  EXPECT_THAT(open_tokenizer(folder_).error().message,
              HasSubstr("add_bos_token = true needs a bos_token of the vocabulary, not \"<s>\""));
  write("tokenizer.json", small);
  EXPECT_THAT(open_tokenizer(folder_).value_or_throw()->encode_text("a", true), ElementsAre(0))
      << "a tokenizer.json says itself what stands around a text";
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

TEST_F(OpenTokenizer, the_end_of_a_text_is_that_of_the_settings_beside_the_tokenizer) {
  write("tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "<|endoftext|>": 1, "<e>": 2}, "merges": []}})");
  const auto end = [&] { return open_tokenizer(folder_).value_or_throw()->end_of_text(); };
  EXPECT_EQ(end(), 1);
  write("generation_config.json", R"({"eos_token_id": [2, 1]})");
  EXPECT_EQ(end(), 2);
  write("generation_config.json", R"({"eos_token_id": 0})");
  EXPECT_EQ(end(), 0);
  write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(end(), 0);
  write("tokenizer_config.json", R"({"eos_token": "<e>", "model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(end(), 2);
  write("tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>", "special": true}})");
  EXPECT_EQ(end(), 1);
  write("tokenizer.json", small);
  fs::remove(folder_ / "tokenizer_config.json");
  fs::remove(folder_ / "generation_config.json");
  EXPECT_EQ(end(), std::nullopt);
  EXPECT_EQ(ByteTokenizer().end_of_text(), std::nullopt);
}

TEST_F(OpenTokenizer, an_end_of_text_that_the_tokenizer_lacks_is_refused_by_file_and_key) {
  write("tokenizer.json", small);
  const auto refusal = [&](const char* file, const char* text) {
    write(file, text);
    const auto opened = open_tokenizer(folder_);
    fs::remove(folder_ / file);
    return opened ? "accepted" : opened.error().message;
  };
  const std::string name = (folder_ / "tokenizer.json").string();
  EXPECT_EQ(refusal("tokenizer_config.json", R"({"eos_token": "</s>"})"),
            (folder_ / "tokenizer_config.json").string() + ": eos_token = \"</s>\" is no token of " + name);
  EXPECT_THAT(refusal("tokenizer_config.json", R"({"eos_token": 7})"),
              HasSubstr("eos_token: expected a string, got 7"));
  EXPECT_THAT(refusal("tokenizer_config.json", "{"), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(refusal("generation_config.json", R"({"eos_token_id": 1})"),
              HasSubstr("generation_config.json: eos_token_id = 1 is no token of " + name));
  EXPECT_THAT(refusal("generation_config.json", R"({"eos_token_id": ["x"]})"),
              HasSubstr("eos_token_id[0]: expected a whole number"));
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
