// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/chat_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "runtime/data/corpus.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;

const ByteTokenizer bytes;

/// Returns tokens as text: images as '#', ends of turns as '$', ignored targets as '.'.
std::string shown(const std::vector<std::int32_t>& tokens, char minus_one) {
  std::string out;
  for (const std::int32_t token : tokens) {
    out += token == -1 ? minus_one : token == 256 ? '$' : static_cast<char>(token);
  }
  return out;
}

TEST(ChatTemplate, lays_out_questions_pictures_and_answers) {
  const Conversation conversation{"x", {"a.png"}, {"<image>\nWhat?", "Cat", "Sure?", "Yes"}};
  const auto chat = chat_tokens(conversation, std::vector<std::int64_t>{3}, bytes, 100, true);
  ASSERT_TRUE(chat.ok());
  // The last token, which ends a turn, is only a target.
  EXPECT_EQ(shown(chat->tokens, '#'), "USER: ###\nWhat?\nASSISTANT: Cat$USER: Sure?\nASSISTANT: Yes");
  EXPECT_EQ(shown(chat->targets, '.'), std::string(26, '.') + "Cat$" + std::string(23, '.') + "Yes$");
  EXPECT_EQ(chat->learned, 8);
  EXPECT_EQ(chat->turns, 4u);
  EXPECT_TRUE(chat->ended);
}

TEST(ChatTemplate, a_target_is_the_token_after) {
  const Conversation conversation{"x", {}, {"Say it.", "It."}};
  const auto chat = chat_tokens(conversation, {}, bytes, 100, true);
  ASSERT_TRUE(chat.ok());
  for (std::size_t at = 0; at + 1 < chat->tokens.size(); ++at) {
    if (chat->targets[at] == ignored_target) continue;
    EXPECT_EQ(chat->targets[at], chat->tokens[at + 1]);
  }
  EXPECT_EQ(chat->targets.back(), end_of_turn(bytes));
}

TEST(ChatTemplate, each_picture_takes_its_own_number_of_patches) {
  const Conversation conversation{"x", {"a", "b"}, {"<image>or<image>?", "b"}};
  const auto chat = chat_tokens(conversation, std::vector<std::int64_t>{2, 4}, bytes, 100, true);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(shown(chat->tokens, '#'), "USER: ##or####?\nASSISTANT: b");
}

TEST(ChatTemplate, a_system_text_stands_in_front) {
  Conversation conversation{"x", {}, {"a", "b"}};
  conversation.system = "Be brief.";
  const auto chat = chat_tokens(conversation, {}, bytes, 100, true);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(shown(chat->tokens, '#'), "Be brief.\nUSER: a\nASSISTANT: b");
  EXPECT_EQ(chat->learned, 2);
}

TEST(ChatTemplate, a_first_answer_that_is_too_long_is_cut_inside) {
  const Conversation conversation{"x", {}, {"a", "bcdef"}};  // 6 + 1 + 12 before the answer, 24 positions in all
  const auto whole = chat_tokens(conversation, {}, bytes, 24, true);
  const auto cut = chat_tokens(conversation, {}, bytes, 20, true);
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_TRUE(whole->ended);
  EXPECT_EQ(whole->learned, 6);
  EXPECT_FALSE(cut->ended);
  EXPECT_EQ(cut->turns, 2u);
  EXPECT_EQ(cut->tokens.size(), 20u);
  EXPECT_EQ(cut->learned, 2);
  EXPECT_EQ(cut->targets.back(), 'c');
}

TEST(ChatTemplate, a_long_conversation_keeps_the_turns_that_fit_and_their_pictures) {  // LT-3
  const Conversation conversation{"x", {"p", "q"}, {"<image>a", "b", "<image>c", "d", "e", "f"}};
  const std::vector<std::int64_t> patches{2, 10};
  const std::string first = "USER: ##a\nASSISTANT: b";
  const auto turns = [&](std::int64_t sequence) {
    const auto chat = chat_tokens(conversation, patches, bytes, sequence, true);
    return chat ? std::tuple(chat->turns, chat->pictures, chat->ended, std::ssize(chat->tokens))
                : std::tuple(0ul, 0ul, false, 0l);
  };
  const auto one = std::ssize(first), two = one + 1 + 6 + 10 + 1 + 12 + 1, three = two + 1 + 6 + 1 + 12 + 1;
  EXPECT_EQ(turns(one), std::tuple(2ul, 1ul, true, one));
  EXPECT_EQ(turns(two - 1), std::tuple(2ul, 1ul, true, one)) << "the second turn would be cut";
  EXPECT_EQ(turns(two), std::tuple(4ul, 2ul, true, two));
  EXPECT_EQ(turns(three - 1), std::tuple(4ul, 2ul, true, two));
  EXPECT_EQ(turns(three), std::tuple(6ul, 2ul, true, three));
  EXPECT_EQ(turns(one - 1), std::tuple(2ul, 1ul, false, one - 1)) << "the only answer loses its end";
  const auto kept = chat_tokens(conversation, patches, bytes, two - 1, true);
  EXPECT_EQ(shown(kept->tokens, '#'), first);
  EXPECT_EQ(kept->targets.back(), end_of_turn(bytes)) << "the model learns to stop";
}

TEST(ChatTemplate, a_cut_that_leaves_no_answer_or_takes_a_picture_is_an_error) {
  const auto answer = chat_tokens({"x", {}, {"a", "bcdef"}}, {}, bytes, 18, true);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "its answer starts at position 20, beyond data.sequence = 18");
  EXPECT_TRUE(chat_tokens({"x", {}, {"a", "bcdef"}}, {}, bytes, 19, true).ok());
  const Conversation large{"x", {"p"}, {"<image>", "c"}};
  const auto picture = chat_tokens(large, std::vector<std::int64_t>{10}, bytes, 15, true);
  ASSERT_FALSE(picture.ok());
  EXPECT_EQ(picture.error().message, "its images reach position 16, beyond data.sequence = 15");
}

TEST(ChatTemplate, the_prompt_is_what_stands_before_the_first_answer) {
  const Conversation conversation{"x", {"a.png"}, {"<image>\nWhat?", "Cat", "Sure?", "Yes"}};
  const auto chat = chat_tokens(conversation, std::vector<std::int64_t>{3}, bytes, 100, true);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(shown(chat->tokens, '#').substr(0, chat->prompt), "USER: ###\nWhat?\nASSISTANT: ");
  EXPECT_EQ(chat->targets[chat->prompt - 1], 'C') << "the prompt's last position predicts the answer";
}

TEST(ChatTemplate, text_for_people_has_neither_pictures_nor_ends_of_turns) {
  EXPECT_EQ(chat_text(std::vector<std::int32_t>{-1, -1, 'h', 'i', 256}, bytes), "hi");
  EXPECT_EQ(chat_question({"x", {"a"}, {"<image>\nWhat?", "a"}}), "What?");
  EXPECT_EQ(chat_question({"x", {"a"}, {"What is this?\n<image>", "a"}}), "What is this?");
  EXPECT_EQ(chat_question({"x", {"a", "b"}, {"<image><image> Which?", "a"}}), "Which?");
}

/// Returns a tokenizer of characters like SentencePiece's, with the merge "▁Y". It marks every text between special
/// tokens, or only the first, and puts <s> before a text.
std::unique_ptr<Tokenizer> marking_tokenizer(const TempFolder& folder, bool first_alone) {
  std::string vocabulary, added;
  std::int64_t ids = 0;
  for (const char* piece : {"<unk>", "<s>", "</s>", "▁", "U", "S", "E", "R", ":", "\\n", "A", "I",
                            "T",     "N",   "W",    "h", "o", "Y", "e", "s", "4", "?",   "B", "▁Y"}) {
    vocabulary += (ids == 0 ? "\"" : ", \"") + std::string(piece) + "\": " + std::to_string(ids);
    if (ids < 3) {
      added += (ids == 0 ? R"({"id": )" : R"(, {"id": )") + std::to_string(ids) + R"(, "content": ")" + piece +
               R"(", "special": true, "normalized": false})";
    }
    ++ids;
  }
  const std::string marks =
      first_alone
          ? R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},)"
          : R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                       {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},)";
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  return open_tokenizer(folder.write("tokenizer.json", R"({"added_tokens": [)" + added + "], " + marks + R"(
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
      "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {)" +
                                                           vocabulary + R"(}, "merges": ["▁ Y"]}})"))
      .value_or_throw();
}

/// Returns the tokens' pieces between bars: images as '#', ends of lines as '/'; learned pieces, by the target, in
/// brackets.
std::string pieces_of(const ChatTokens& chat, const Tokenizer& tokenizer) {
  std::string out;
  for (std::size_t at = 0; at < chat.tokens.size(); ++at) {
    const std::string piece = chat.tokens[at] == image_token ? "#" : tokenizer.piece(chat.tokens[at]);
    const bool learned = at > 0 && chat.targets[at - 1] != ignored_target;
    out += (out.empty() ? "" : "|") + (learned ? "[" + piece + "]" : piece);
  }
  std::ranges::replace(out, '\n', '/');
  return out;
}

TEST(ChatTemplate, tokens_are_those_of_the_whole_text_cut_at_its_special_tokens) {  // LT-1, LT-2
  // Recorded with tokenizers 0.22; <image> is a special token.
  const std::string before = "<s>|▁|U|S|E|R|:|▁|W|h|o|?|/|A|S|S|I|S|T|A|N|T|:|";
  const std::string again = "U|S|E|R|:|▁|W|h|o|?|/|A|S|S|I|S|T|A|N|T|:|▁|[4]";
  const std::string asked = "/|W|h|o|?|/|A|S|S|I|S|T|A|N|T|:|[▁Y]|[e]|[s]";
  const Conversation text{"x", {}, {"Who?", "Yes", "Who?", "4"}};
  Conversation seen{"x", {"a.png"}, {"<image>\nWho?", "Yes"}};
  seen.system = "Be";
  for (const bool first_alone : {false, true}) {
    const TempFolder folder;
    const auto tokenizer = marking_tokenizer(folder, first_alone);
    const std::string mark = first_alone ? "" : "▁|";
    const auto spoken = chat_tokens(text, {}, *tokenizer, 100, true);
    ASSERT_TRUE(spoken.ok());
    EXPECT_EQ(pieces_of(*spoken, *tokenizer), before + "[▁Y]|[e]|[s]|[</s>]|" + mark + again);
    EXPECT_EQ(spoken->targets.back(), end_of_turn(*tokenizer));
    const auto drawn = chat_tokens(seen, std::vector<std::int64_t>{2}, *tokenizer, 100, true);
    ASSERT_TRUE(drawn.ok());
    EXPECT_EQ(pieces_of(*drawn, *tokenizer), "<s>|▁|B|e|/|U|S|E|R|:|▁|#|#|" + mark + asked);
    EXPECT_EQ(chat_vocabulary(*tokenizer), tokenizer->vocabulary());
  }
  EXPECT_EQ(chat_vocabulary(bytes), 257);
}

TEST(ChatTemplate, begin_of_text_stands_before_a_conversation_once_and_not_on_request) {
  const TempFolder folder;
  const auto tokenizer = marking_tokenizer(folder, false);
  Conversation conversation{"x", {}, {"Who?", "4"}};
  const auto begins = [&](bool begin) {
    return pieces_of(*chat_tokens(conversation, {}, *tokenizer, 100, begin), *tokenizer);
  };
  EXPECT_THAT(begins(true), testing::StartsWith("<s>|▁|U|S"));
  EXPECT_THAT(begins(false), testing::StartsWith("▁|U|S|E|R"));
  conversation.system = "<s>B";
  EXPECT_THAT(begins(true), testing::StartsWith("<s>|▁|B|/"));
}

TEST(ChatTemplate, a_written_answer_is_shown_without_the_space_before_it) {
  const TempFolder folder;
  const auto tokenizer = marking_tokenizer(folder, false);
  const auto answered = [&](const char* answer) {
    const auto chat = chat_tokens({"x", {}, {"Who?", answer}}, {}, *tokenizer, 100, true);
    const std::span<const std::int32_t> all(chat->tokens);
    return chat_answer(all.first(chat->prompt), all.subspan(chat->prompt), *tokenizer);
  };
  EXPECT_EQ(answered("Yes"), "Yes") << "its first token holds the space";
  EXPECT_EQ(answered("4"), "4");
}

}  // namespace
}  // namespace maestro
