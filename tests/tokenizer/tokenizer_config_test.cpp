// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer_config.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace maestro {
namespace {

namespace fs = std::filesystem;

class TokenizerConfigFile : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  void write(const char* name, const std::string& text) const { std::ofstream(folder / name) << text; }
  [[nodiscard]] std::string refusal() const {
    const auto read = read_tokenizer_config(folder);
    return read.ok() ? "accepted" : read.error().message;
  }
  const fs::path folder =
      fs::path(testing::TempDir()) /
      ("tokenizer_config_" + std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string file = (folder / "tokenizer_config.json").string();
};

TEST_F(TokenizerConfigFile, tokens_stand_as_text_or_as_objects) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}})");
  const TokenizerConfig config = read_tokenizer_config(folder).value_or_throw();
  EXPECT_EQ(config.bos_token, "<s>");
  EXPECT_EQ(config.eos_token, "</s>");
  EXPECT_EQ(config.chat_template, "");
}

TEST_F(TokenizerConfigFile, a_folder_without_it_gives_nothing) {
  const TokenizerConfig config = read_tokenizer_config(folder).value_or_throw();
  EXPECT_EQ(config.bos_token + config.eos_token + config.chat_template + config.template_file, "");
}

TEST_F(TokenizerConfigFile, a_template_is_a_text_or_the_default_of_a_list) {
  write("tokenizer_config.json", R"({"bos_token": null, "chat_template": "A"})");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().chat_template, "A");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "T"},
                                                       {"name": "default", "template": "D"}]})");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().chat_template, "D");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().template_file, file);
}

TEST_F(TokenizerConfigFile, a_template_of_its_own_file_counts_first) {
  write("tokenizer_config.json", R"({"chat_template": "A"})");
  write("chat_template.jinja", "B");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().chat_template, "B");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().template_file, (folder / "chat_template.jinja").string());
}

TEST_F(TokenizerConfigFile, a_template_of_the_models_processor_counts_last) {
  write("chat_template.json", R"({"chat_template": "C"})");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().chat_template, "C");
  write("processor_config.json", R"({"chat_template": "P", "image_seq_len": 64})");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().chat_template, "P");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().template_file, (folder / "processor_config.json").string());
  write("tokenizer_config.json", R"({"chat_template": "A"})");
  EXPECT_EQ(read_tokenizer_config(folder).value_or_throw().chat_template, "A");
}

TEST_F(TokenizerConfigFile, wrong_values_are_refused_by_file_and_key) {
  write("tokenizer_config.json", R"({"eos_token": 3})");
  EXPECT_EQ(refusal(), file + ": eos_token: expected a string, got 3");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "T"}]})");
  EXPECT_EQ(refusal(), file + ": chat_template: no template has the name default, only: rag");
  write("tokenizer_config.json", "[");
  EXPECT_NE(refusal().find(file), std::string::npos);
}

}  // namespace
}  // namespace maestro
