// SPDX-License-Identifier: Apache-2.0
// A model from SentencePiece's trainer, read by the tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SentencePiece : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 200; ++i) text << "the stone " << i << " falls over the small river\n";
    text.close();
    train("bpe");
  }
  void train(const std::string& type) const {
    const std::string prefix = (folder_ / "tokenizer").string();
    const auto trained = sentencepiece::SentencePieceTrainer::Train(
        "--input=" + (folder_ / "text").string() + " --model_prefix=" + prefix +
        " --vocab_size=320 --model_type=" + type + " --byte_fallback=true --minloglevel=4 --hard_vocab_limit=false");
    ASSERT_TRUE(trained.ok()) << trained.ToString();
  }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ =
      fs::path(testing::TempDir()) /
      ("sentencepiece_" + std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(SentencePiece, a_unigram_model_is_refused_by_name_and_other_kinds_are_read) {
  for (const char* type : {"word", "char"}) {
    train(type);
    EXPECT_TRUE(open_tokenizer(folder_).ok()) << type;
  }
  train("unigram");
  const auto unigram = open_tokenizer(folder_);
  ASSERT_FALSE(unigram.ok());
  EXPECT_EQ(unigram.error().message,
            (folder_ / "tokenizer.model").string() +
                " is a Unigram model of SentencePiece, which cuts texts with equal scores otherwise in each version of "
                "the library; use a BPE model");
}

TEST_F(SentencePiece, decoding_returns_the_text_that_was_encoded) {
  const auto tokenizer = open_tokenizer(folder_).value_or_throw();
  EXPECT_EQ(tokenizer->name(), (folder_ / "tokenizer.model").string());
  const std::string text = "the river falls \xe6\x97\xa5 over";
  const auto ids = tokenizer->encode(text);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer->decode(ids, false), text);
  for (const std::int32_t id : ids) EXPECT_LT(id, tokenizer->vocabulary());
  EXPECT_EQ(tokenizer->piece(1), "<s>");
  EXPECT_EQ(tokenizer->piece(-1), "\xef\xbf\xbd");
}

TEST_F(SentencePiece, special_tokens_stand_around_a_text_as_its_settings_have_it) {
  auto tokenizer = open_tokenizer(folder_).value_or_throw();
  auto wanted = tokenizer->encode("the");
  wanted.insert(wanted.begin(), 1);
  EXPECT_EQ(tokenizer->encode_special("the"), wanted);
  EXPECT_EQ(tokenizer->encode_text("the", true), wanted);
  EXPECT_EQ(tokenizer->decode(wanted, false), "<s>the");
  EXPECT_EQ(tokenizer->decode(wanted, true), "the");
  std::ofstream(folder_ / "tokenizer_config.json") << R"({"add_bos_token": false, "add_eos_token": true})";
  tokenizer = open_tokenizer(folder_).value_or_throw();
  wanted.erase(wanted.begin());
  wanted.push_back(2);
  EXPECT_EQ(tokenizer->encode_special("the"), wanted);
}

TEST_F(SentencePiece, a_file_of_another_kind_is_refused_by_name) {
  std::ofstream(folder_ / "tokenizer.model") << "text";
  const auto made = open_tokenizer(folder_);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr((folder_ / "tokenizer.model").string()));
}

}  // namespace
}  // namespace maestro
