// SPDX-License-Identifier: Apache-2.0
#include "runtime/records/chat_encoder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace maestro {
namespace {

using nlohmann::json;
using Messages = std::vector<ChatMessage>;

const std::string references = std::string(MAESTRO_SOURCE_DIR) + "/tests/records/references/";
const ChatContext special{"<s>", "</s>"};

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<Messages> conversations() {
  std::vector<Messages> made;
  std::istringstream lines(contents(references + "conversations.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Messages& messages = made.emplace_back();
    const json row = json::parse(line);
    for (const json& each : row.at("messages")) messages.push_back({each.at("role"), each.at("content")});
  }
  return made;
}

/// As in record_references.py.
std::string hash_of(const std::vector<Document>& documents) {
  std::uint64_t value = 0xcbf29ce484222325u;
  const auto add = [&](std::uint64_t number) { value = (value ^ number) * 0x100000001b3u; };
  for (const Document& document : documents) {
    for (std::size_t at = 0; at < document.tokens.size(); ++at) {
      add(static_cast<std::uint64_t>(document.tokens[at] & 255));
      add(static_cast<std::uint64_t>(document.tokens[at] >> 8));
      add(document.learned[at]);
    }
    add(256);
  }
  char text[17];
  (void)std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string encoded(const ChatEncoder& encoder, const Messages& messages) {
  const Result<std::vector<Document>> documents = encoder.encode(messages);
  return documents ? hash_of(*documents) : "refused";
}

/// CE-1 and CE-2.
TEST(ChatEncoder, ids_and_targets_equal_those_of_transformers) {
  const auto tokenizer = open_tokenizer(references + "tokenizer.json").value_or_throw();
  const json expected = json::parse(contents(references + "expected.json"));
  const std::vector<Messages> all = conversations();
  ASSERT_EQ(expected.size(), 12U);
  ASSERT_EQ(all.size(), 500U);
  for (const auto& [name, hashes] : expected.items()) {
    const ChatTemplate chat(contents(std::string(MAESTRO_SOURCE_DIR) + "/tests/chat/references/" + name + ".jinja"),
                            name);
    const ChatEncoder encoder(*tokenizer, chat, {special, LearnedAnswers::all, {}});
    for (std::size_t at = 0; at < all.size(); ++at) {
      ASSERT_EQ(encoded(encoder, all[at]), hashes[at].get<std::string>()) << name << ", conversation " << at;
    }
  }
}

/// A template by bytes, so that a test can read the targets: Q question E, A answer E.
class ByBytes : public ::testing::Test {
 protected:
  /// The texts of the documents, with * before each byte that is learned.
  [[nodiscard]] std::vector<std::string> marked(const Messages& messages, LearnedAnswers learned = LearnedAnswers::all,
                                                std::vector<std::int32_t> ends = {'E'}) const {
    const ChatEncoder encoder(tokenizer_, template_, {{}, learned, std::move(ends)});
    std::vector<std::string> made;
    for (const Document& document : encoder.encode(messages).value_or_throw()) {
      std::string& text = made.emplace_back();
      for (std::size_t at = 0; at < document.tokens.size(); ++at) {
        text += std::string(document.learned[at] != 0 ? "*" : "") + static_cast<char>(document.tokens[at]);
      }
    }
    return made;
  }
  [[nodiscard]] std::string refusal(const Messages& messages, std::vector<std::int32_t> ends = {'E'}) const {
    const ChatEncoder encoder(tokenizer_, template_, {{}, LearnedAnswers::all, std::move(ends)});
    const Result<std::vector<Document>> documents = encoder.encode(messages);
    return documents ? "accepted" : documents.error().message;
  }

  ByteTokenizer tokenizer_;
  ChatTemplate template_{
      "{% for m in messages %}{{ 'A' if m.role == 'assistant' else 'Q' }}{{ m.content }}E{% endfor %}"
      "{% if add_generation_prompt %}A{% endif %}",
      "by bytes"};
};

TEST_F(ByBytes, answers_are_learned_with_their_ends) {  // CE-2, CE-3
  const Messages messages{{"user", "a"}, {"assistant", "bc"}, {"user", "d"}, {"assistant", "e"}, {"user", "f"}};
  EXPECT_EQ(marked(messages), std::vector<std::string>{"QaEA*b*c*EQdEA*e*E"});
  EXPECT_EQ(marked(messages, LearnedAnswers::last), std::vector<std::string>{"QaEAbcEQdEA*e*E"});
}

TEST_F(ByBytes, an_answer_without_an_end_at_which_generation_stops_is_refused) {  // CE-3
  EXPECT_EQ(refusal({{"user", "a"}, {"assistant", "b"}}, {'F'}),
            "messages[1] ends without F, so that a model would never stop: the template ends it with \"QaEAbE\"; name "
            "the token of that end as data.end_of_turn (--end-of-turn)");
}

TEST_F(ByBytes, conversations_without_an_answer_are_refused) {
  EXPECT_EQ(refusal({{"user", "a"}}), "the conversation has no answer to learn: no message is from the assistant");
  EXPECT_EQ(refusal({{"user", "a"}, {"assistant", ""}}), "messages[1] is an empty answer");
}

TEST(ChatEncoder, a_template_that_changes_earlier_answers_makes_a_document_of_each) {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.content if loop.last or m.role == 'user' else m.content[:1] }}E{% endfor %}", "t");
  const ChatEncoder encoder(tokenizer, chat, {});
  const Messages messages{{"user", "a"}, {"assistant", "bc"}, {"user", "d"}, {"assistant", "e"}};
  const std::vector<Document> documents = encoder.encode(messages).value_or_throw();
  ASSERT_EQ(documents.size(), 2U);
  EXPECT_EQ(tokenizer.decode(documents[0].tokens), "aEbcE");
  EXPECT_EQ(documents[0].learned, (std::vector<std::uint8_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(tokenizer.decode(documents[1].tokens), "aEbEdEeE");
  EXPECT_EQ(documents[1].learned, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 1, 1}));
}

TEST(ChatEncoder, a_prompt_that_is_no_beginning_of_its_answer_is_refused) {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}", "t");
  const ChatEncoder encoder(tokenizer, chat, {});
  const Messages messages{{"user", "a"}, {"assistant", "b"}};
  EXPECT_EQ(encoder.encode(messages).error().message,
            "the template's prompt for messages[1] is no beginning of the conversation with that answer");
}

TEST(ChatEncoder, what_the_template_refuses_is_an_error) {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat("{{ raise_exception('never') }}", "t");
  const ChatEncoder encoder(tokenizer, chat, {});
  const Messages messages{{"user", "a"}, {"assistant", "b"}};
  EXPECT_EQ(encoder.encode(messages).error().message, "t: line 1 of the chat template: it refuses the messages: never");
}

}  // namespace
}  // namespace maestro
