// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/chat_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/corpus.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;

const ByteTokenizer bytes;

/// Tokens as text: pictures as '#', ends of turns as '$', ignored targets as '.'.
std::string shown(const std::vector<std::int32_t>& tokens, char minus_one) {
  std::string out;
  for (const std::int32_t token : tokens) {
    out += token == -1 ? minus_one : token == 256 ? '$' : static_cast<char>(token);
  }
  return out;
}

TEST(ChatTemplate, lays_out_questions_pictures_and_answers) {
  const Conversation conversation{"x", {"a.png"}, {"<image>\nWhat?", "Cat", "Sure?", "Yes"}};
  const auto chat = chat_tokens(conversation, std::vector<std::int64_t>{3}, bytes, 100);
  ASSERT_TRUE(chat.ok());
  // The last token, an end of turn, is a target only.
  EXPECT_EQ(shown(chat->tokens, '#'), "USER: ###\nWhat?\nASSISTANT: Cat$USER: Sure?\nASSISTANT: Yes");
  EXPECT_EQ(shown(chat->targets, '.'), std::string(26, '.') + "Cat$" + std::string(23, '.') + "Yes$");
  EXPECT_EQ(chat->learned, 8);
  EXPECT_EQ(chat->cut, 0);
}

TEST(ChatTemplate, a_target_is_the_token_after) {
  const Conversation conversation{"x", {}, {"Say it.", "It."}};
  const auto chat = chat_tokens(conversation, {}, bytes, 100);
  ASSERT_TRUE(chat.ok());
  for (std::size_t at = 0; at + 1 < chat->tokens.size(); ++at) {
    if (chat->targets[at] == ignored_target) continue;
    EXPECT_EQ(chat->targets[at], chat->tokens[at + 1]);
  }
  EXPECT_EQ(chat->targets.back(), end_of_turn(bytes));
}

TEST(ChatTemplate, each_picture_takes_its_own_number_of_patches) {
  const Conversation conversation{"x", {"a", "b"}, {"<image>or<image>?", "b"}};
  const auto chat = chat_tokens(conversation, std::vector<std::int64_t>{2, 4}, bytes, 100);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(shown(chat->tokens, '#'), "USER: ##or####?\nASSISTANT: b");
}

TEST(ChatTemplate, a_long_conversation_is_cut_at_its_end) {
  const Conversation conversation{"x", {}, {"a", "bcdef"}};  // 6 + 1 + 12 before the answer, 24 positions in all
  const auto whole = chat_tokens(conversation, {}, bytes, 24);
  const auto cut = chat_tokens(conversation, {}, bytes, 20);
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_EQ(whole->cut, 0);
  EXPECT_EQ(whole->learned, 6);
  EXPECT_EQ(cut->cut, 4);
  EXPECT_EQ(cut->tokens.size(), 20u);
  EXPECT_EQ(cut->learned, 2);
  EXPECT_EQ(cut->targets.back(), 'c');
}

TEST(ChatTemplate, a_cut_that_leaves_no_answer_or_takes_a_picture_is_an_error) {
  const auto answer = chat_tokens({"x", {}, {"a", "bcdef"}}, {}, bytes, 18);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "its answer starts at position 20, beyond data.sequence = 18");
  EXPECT_TRUE(chat_tokens({"x", {}, {"a", "bcdef"}}, {}, bytes, 19).ok());
  const Conversation late{"x", {"p"}, {"a", "b", "<image>", "c"}};
  const auto picture = chat_tokens(late, std::vector<std::int64_t>{10}, bytes, 36);
  ASSERT_FALSE(picture.ok());
  EXPECT_EQ(picture.error().message, "its pictures reach position 37, beyond data.sequence = 36");
  EXPECT_TRUE(chat_tokens(late, std::vector<std::int64_t>{10}, bytes, 37).ok());
}

TEST(ChatTemplate, the_prompt_is_what_stands_before_the_first_answer) {
  const Conversation conversation{"x", {"a.png"}, {"<image>\nWhat?", "Cat", "Sure?", "Yes"}};
  const std::vector<std::int64_t> patches{3};
  const auto chat = chat_tokens(conversation, patches, bytes, 100);
  const auto prompt = chat_prompt(conversation, patches, bytes);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(shown(prompt, '#'), "USER: ###\nWhat?\nASSISTANT: ");
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), chat->tokens.begin()));
  EXPECT_EQ(chat->targets[prompt.size() - 1], 'C') << "the prompt's last position predicts the answer";
}

TEST(ChatTemplate, text_for_people_has_neither_pictures_nor_ends_of_turns) {
  EXPECT_EQ(chat_text(std::vector<std::int32_t>{-1, -1, 'h', 'i', 256}, bytes), "hi");
  EXPECT_EQ(chat_question({"x", {"a"}, {"<image>\nWhat?", "a"}}), "What?");
  EXPECT_EQ(chat_question({"x", {"a"}, {"What is this?\n<image>", "a"}}), "What is this?");
  EXPECT_EQ(chat_question({"x", {"a", "b"}, {"<image><image> Which?", "a"}}), "Which?");
}

/// Words between spaces, a space at a word's beginning, and the end of a text.
constexpr const char* words = R"({"model": {"type": "BPE", "merges": [],
    "vocab": {"<|endoftext|>": 0, "USER: Is": 1, "Who?\nASSISTANT: ": 2, "Cat": 3, "USER: ": 4,
              "USER: Sure?\nASSISTANT: ": 5, "Yes": 6, "\nASSISTANT: ": 7},
    "unk_token": "<|endoftext|>", "ignore_merges": true}})";

TEST(ChatTemplate, a_tokenizer_encodes_the_text_around_pictures_and_ends_a_turn_with_its_end_of_text) {
  const TempFolder folder;
  const auto tokenizer = open_tokenizer(folder.write("tokenizer.json", words)).value_or_throw();
  const Conversation conversation{"x", {"a.png"}, {"Is<image>Who?", "Cat", "Sure?", "Yes"}};
  const auto chat = chat_tokens(conversation, std::vector<std::int64_t>{2}, *tokenizer, 100);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->tokens, (std::vector<std::int32_t>{1, -1, -1, 2, 3, 0, 5, 6}));
  EXPECT_EQ(chat->targets, (std::vector<std::int32_t>{-1, -1, -1, 3, 0, -1, 6, 0}));
  EXPECT_EQ(chat_vocabulary(*tokenizer), tokenizer->vocabulary());
  EXPECT_EQ(chat_vocabulary(bytes), 257);
  EXPECT_EQ(chat_text(std::vector<std::int32_t>{-1, 3, 0}, *tokenizer), "Cat");
}

}  // namespace
}  // namespace maestro
