// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/chat_encoder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace maestro {
namespace {

using nlohmann::json;
using Messages = std::vector<ChatMessage>;

const std::string references = std::string(MAESTRO_SOURCE_DIR) + "/tests/dataset/references/";
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

/// Returns the documents' hash as in record_references.py.
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

Record record_of(const Messages& messages) {
  Record record;
  record.messages = messages;
  return record;
}

Result<std::vector<Document>> encode(const ChatEncoder& encoder, const Messages& messages) {
  RowNotes notes;
  return encoder.encode(record_of(messages), notes);
}

std::string encoded(const ChatEncoder& encoder, const Messages& messages) {
  const Result<std::vector<Document>> documents = encode(encoder, messages);
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

/// A template by bytes, so that tests can read the targets: Q question E, A answer E.
class ByBytes : public ::testing::Test {
 protected:
  /// Returns the documents' texts, with * before each learned byte.
  [[nodiscard]] std::vector<std::string> marked(const Messages& messages, LearnedAnswers learned = LearnedAnswers::all,
                                                std::vector<std::int32_t> ends = {'E'}) const {
    const ChatEncoder encoder(tokenizer_, template_, {{}, learned, std::move(ends)});
    std::vector<std::string> made;
    for (const Document& document : encode(encoder, messages).value_or_throw()) {
      std::string& text = made.emplace_back();
      for (std::size_t at = 0; at < document.tokens.size(); ++at) {
        text += std::string(document.learned[at] != 0 ? "*" : "") + static_cast<char>(document.tokens[at]);
      }
    }
    return made;
  }
  [[nodiscard]] std::string refusal(const Messages& messages, std::vector<std::int32_t> ends = {'E'}) const {
    const ChatEncoder encoder(tokenizer_, template_, {{}, LearnedAnswers::all, std::move(ends)});
    const Result<std::vector<Document>> documents = encode(encoder, messages);
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

TEST_F(ByBytes, a_prompt_ends_with_the_beginning_of_an_answer) {
  // The last byte stands once more, so that the prompt's last token has a position in a sample.
  const Messages messages{{"user", "a"}, {"assistant", "bc"}, {"user", "d"}, {"assistant", "e"}};
  EXPECT_EQ(marked(messages, LearnedAnswers::none), std::vector<std::string>{"QaEAbcEQdEAA"});
  EXPECT_EQ(marked({{"user", "a"}}, LearnedAnswers::none), std::vector<std::string>{"QaEAA"});
  EXPECT_EQ(marked({{"user", "a"}}, LearnedAnswers::none, {'F'}), std::vector<std::string>{"QaEAA"});
  const ChatEncoder encoder(tokenizer_, template_, {{}, LearnedAnswers::none, {}});
  EXPECT_EQ(encode(encoder, {{"assistant", "b"}}).error().message,
            "the conversation contains no prompt: no message is from a user");
}

TEST_F(ByBytes, an_answer_without_an_end_at_which_generation_stops_is_refused) {  // CE-3
  EXPECT_EQ(refusal({{"user", "a"}, {"assistant", "b"}}, {'F'}),
            "messages[1] ends without F, so that a model would never stop: the template ends it with \"QaEAbE\"; name "
            "that end's token as data.end_of_turn (--end-of-turn)");
}

TEST_F(ByBytes, conversations_without_an_answer_are_refused) {
  EXPECT_EQ(refusal({{"user", "a"}}), "the conversation contains no answer to learn: no message is from the assistant");
  EXPECT_EQ(refusal({{"user", "a"}, {"assistant", ""}}), "messages[1] is an empty answer");
}

TEST(ChatEncoder, a_template_that_changes_earlier_answers_makes_a_document_of_each) {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.content if loop.last or m.role == 'user' else m.content[:1] }}E{% endfor %}", "t");
  const ChatEncoder encoder(tokenizer, chat, {});
  const Messages messages{{"user", "a"}, {"assistant", "bc"}, {"user", "d"}, {"assistant", "e"}};
  const std::vector<Document> documents = encode(encoder, messages).value_or_throw();
  ASSERT_EQ(documents.size(), 2U);
  EXPECT_EQ(tokenizer.decode(documents[0].tokens), "aEbcE");
  EXPECT_EQ(documents[0].learned, (std::vector<std::uint8_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(tokenizer.decode(documents[1].tokens), "aEbEdEeE");
  EXPECT_EQ(documents[1].learned, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 1, 1}));
}

/// Returns the documents' texts with * before each learned byte, or the error; then the notes.
std::string learned(const std::string& source, const Record& record, std::vector<std::int32_t> ends = {},
                    std::optional<std::int32_t> end = {}) {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat(source, "t");
  const ChatEncoder encoder(tokenizer, chat, {{}, LearnedAnswers::all, std::move(ends), end, source});
  RowNotes notes;
  notes.set_row("f:1");
  const Result<std::vector<Document>> documents = encoder.encode(record, notes);
  if (!documents) return documents.error().message;
  std::string text;
  for (const Document& document : *documents) {
    for (std::size_t at = 0; at < document.tokens.size(); ++at) {
      text += std::string(document.learned[at] != 0 ? "*" : "") + static_cast<char>(document.tokens[at]);
    }
    text += ";";
  }
  for (const std::string& line : notes.lines()) text += "\n" + line;
  return text;
}

TEST(ChatEncoder, an_answer_begins_where_the_prompt_departs_from_its_text) {  // CE-2
  const std::string source =
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content.split('</think>')[-1] }}{% endfor %}"
      "{% if add_generation_prompt %}<a><think>{% endif %}";
  EXPECT_EQ(learned(source, record_of({{"user", "q"}, {"assistant", "<b>ok"}})),
            "<u>q<a>*<*b*>*o*k;\nthe text of 1 of 1 answer does not begin with the template's prompt, and is learned "
            "from the end of their common prefix, first messages[1] at f:1: the prompt has "
            "\"<u>q<a><think>\", but the text has \"<u>q<a><b>ok\"");
}

TEST(ChatEncoder, a_prompt_that_departs_before_the_answer_is_refused) {  // CE-5
  EXPECT_EQ(learned("{% for m in messages %}{{ 'x' if add_generation_prompt }}{{ m.content }}{% endfor %}",
                    record_of({{"user", "qrs"}, {"assistant", "b"}})),
            "the template's prompt for messages[1] differs from the conversation before that answer: the prompt has "
            "\"xqrs\", but the text has \"qrsb\"");
}

TEST(ChatEncoder, marked_answers_are_learned_as_they_are_marked) {  // CE-4
  EXPECT_EQ(learned("{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}{{ m.content }}E"
                    "{% endgeneration %}\n{% else %}Q{{ m.content }}\n{% endif %}{% endfor %}",
                    record_of({{"user", "q"}, {"assistant", "bc"}, {"user", "r"}, {"assistant", "d"}}), {'E'}),
            "Qq\nA*b*c*EQr\nA*d*E;");
}

TEST(ChatEncoder, an_end_that_no_template_writes_is_that_of_the_next_turn_or_appended) {  // CE-3
  const std::string source = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}";
  const Record record = record_of({{"user", "q"}, {"assistant", "1234"}, {"user", "r"}, {"assistant", "5678"}});
  EXPECT_EQ(learned(source, record, {'u'}),
            "uq*a*1*2*3*4*ur*a*5*6*7*8*u;\nthe template ends no turn: the end of 2 answers is u, which begins the "
            "next turn and stops generation, first messages[1] at f:1");
  EXPECT_EQ(learned(source, record, {'E'}, 'E'),
            "uq*a*1*2*3*4*E;uqa1234ur*a*5*6*7*8*E;\nthe template writes no end for 2 answers: E is appended, first "
            "messages[1] at f:1");
}

TEST(ChatEncoder, what_a_template_leaves_out_is_counted_and_an_answer_without_text_is_refused) {  // CE-6
  const std::string split = "{% for m in messages %}{{ m.role[0] }}{{ m.content.split('</think>')[-1] }}E{% endfor %}";
  EXPECT_EQ(learned(split, record_of({{"user", "q"}, {"assistant", "<think>abcd</think>1234"}}), {'E'}),
            "uqE*a*1*2*3*4*E;\nthe template leaves out 82.6% of the text of answers (19 of 23 characters), first of "
            "messages[1] at f:1");
  EXPECT_EQ(learned(split, record_of({{"user", "q"}, {"assistant", "<think>abcd</think>"}}), {'E'}),
            "nothing of messages[1] is in the template's text, which ends with \"uqEaE\": it keeps only text after "
            "</think>, and there is none");
  EXPECT_EQ(learned("{% for m in messages %}{{ m.role[0] }}{{ m.text }}E{% endfor %}",
                    record_of({{"user", "q"}, {"assistant", "yes"}}), {'E'}),
            "nothing of messages[1] is in the template's text, which ends with \"uEaE\": it does not use the "
            "message's \"content\"");
}

TEST(ChatEncoder, fields_that_a_template_does_not_read_and_unknown_roles_are_named) {
  const std::string source =
      "{% for m in messages %}{{ m.role[0] }}{{ m.reasoning_content }}{{ m.content }}E{% endfor %}";
  Record record = record_of({{"critic", "q"}, {"assistant", "1234", R"({"reasoning_content":"56","name":"n"})"}});
  record.tools = "[1]";
  EXPECT_EQ(learned(source, record, {'E'}),
            "cqE*a*5*6*1*2*3*4*E;\nthe role \"critic\" of 1 message is not known, and the template neither refuses nor "
            "names it, first messages[0] at f:1\nthe template does not read \"name\", which 1 message or row has, "
            "first messages[1] at f:1\nthe template does not read \"tools\", which 1 message or row has, first the "
            "row at f:1");
}

TEST(ChatEncoder, calls_that_a_template_does_not_write_are_passed_over_with_a_note) {  // CE-6
  const std::string source = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}E{% endfor %}";
  const ChatMessage call{"assistant", "", R"({"tool_calls":[{"function":{"name":"add","arguments":{"a":2222}}}]})"};
  EXPECT_EQ(
      learned(source, record_of({{"user", "q"}, call, {"tool", "r"}, {"assistant", "5678"}}), {'E'}),
      "uqEaEtrE*a*5*6*7*8*E;\nthe template leaves out 63.6% of the text of answers (7 of 11 characters), first of "
      "messages[1] at f:1\nthe template writes nothing of 1 answer with only tool calls or thoughts, which cannot "
      "be learned, first messages[1] at f:1\nthe template does not read \"tool_calls\", which 1 message or row "
      "has, first messages[1] at f:1");
  EXPECT_EQ(
      learned(source, record_of({{"user", "q"}, call}), {'E'}),
      "nothing of messages[1] is in the template's text, which ends with \"uqEaE\": it does not use the message's "
      "\"tool_calls\"");
}

TEST(ChatEncoder, answers_of_weight_0_are_not_learned) {
  Record record = record_of({{"user", "q"}, {"assistant", "1234"}, {"user", "r"}, {"assistant", "5678"}});
  record.unlearned = {1};
  const std::string source = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}E{% endfor %}";
  EXPECT_EQ(learned(source, record, {'E'}),
            "uqEa1234EurE*a*5*6*7*8*E;\n1 answer has the weight 0 and is not learned, first messages[1] at f:1");
  record.unlearned = {1, 3};
  EXPECT_EQ(learned(source, record), "the conversation contains no answer to learn: the weight of each is 0");
}

TEST(ChatEncoder, what_the_template_refuses_is_an_error) {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat("{{ raise_exception('never') }}", "t");
  const ChatEncoder encoder(tokenizer, chat, {});
  const Messages messages{{"user", "a"}, {"assistant", "b"}};
  EXPECT_EQ(encode(encoder, messages).error().message,
            "t: line 1 of the chat template: it refuses the messages: never");
}

}  // namespace
}  // namespace maestro
