// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/conversation_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/dataset/document_encoder.hpp"
#include "runtime/dataset/record_format.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using testing::HasSubstr;

PrepareOptions options_of(const std::string& tokenizer) {
  PrepareOptions options;
  options.tokenizer = tokenizer;
  options.chat_template = "auto";
  options.scaled = ScaledTile{8, 0, 1024};
  return options;
}

/// Encodes a row whose images have these numbers of patches.
class Encoding {
 public:
  explicit Encoding(const PrepareOptions& options) : encoder_(options) {}

  Result<std::vector<Document>> documents(const json& row, const std::vector<std::int64_t>& patches) const {
    const Result<RecordFormat> format = RecordFormat::of(row, "", ImagesOfRows::spaced);
    if (!format) return format.error();
    const Result<Record> record = format->read(row, row.dump());
    if (!record) return record.error();
    std::vector<ImagePlan> plans;
    for (std::size_t at = 0; at < record->images.size(); ++at) {
      plans.push_back(encoder_.images()->processor.plan({8 * patches.at(at), 8}).value_or_throw());
    }
    RowNotes notes;
    return encoder_.encode(*record, notes, plans);
  }
  Document document(const json& row, const std::vector<std::int64_t>& patches) const {
    auto made = documents(row, patches).value_or_throw();
    EXPECT_EQ(made.size(), 1U);
    return made.front();
  }
  const Tokenizer& tokenizer() const { return encoder_.tokenizer(); }
  std::int32_t image_token() const { return encoder_.images()->expander.image_token(); }

 private:
  DocumentEncoder encoder_;
};

/// Returns a row of turns, questions first; `system` is empty or the text before them.
json row_of(const std::vector<std::string>& turns, std::size_t images = 0, const std::string& system = "") {
  json list = json::array(), names = json::array();
  if (!system.empty()) list.push_back({{"from", "system"}, {"value", system}});
  for (std::size_t at = 0; at < turns.size(); ++at) {
    list.push_back({{"from", at % 2 == 0 ? "human" : "gpt"}, {"value", turns[at]}});
  }
  for (std::size_t at = 0; at < images; ++at) names.push_back(std::to_string(at) + ".png");
  return {{"image", names}, {"conversations", list}};
}

/// Returns the tokens of bytes as text, with images as '#' and ends as '$'; then the learned ones, others as '.'.
std::pair<std::string, std::string> shown(const json& row, const std::vector<std::int64_t>& patches = {}) {
  const Document document = Encoding(options_of("bytes")).document(row, patches);
  std::string tokens, learned;
  for (std::size_t at = 0; at < document.tokens.size(); ++at) {
    const std::int32_t token = document.tokens[at];
    tokens += token == 257 ? '#' : token == 256 ? '$' : static_cast<char>(token);
    learned += document.learned[at] != 0 ? tokens.back() : '.';
  }
  return {tokens, learned};
}

// Texts and targets are those of the writer of conversations in versions up to this template.
TEST(ConversationTemplate, lays_out_questions_images_and_answers) {
  const auto [tokens, learned] = shown(row_of({"<image>\nWhat?", "Cat", "Sure?", "Yes"}, 1), {3});
  EXPECT_EQ(tokens, "USER: ###\nWhat?\nASSISTANT: Cat$USER: Sure?\nASSISTANT: Yes$");
  EXPECT_EQ(learned, std::string(27, '.') + "Cat$" + std::string(23, '.') + "Yes$");
}

TEST(ConversationTemplate, keeps_the_text_around_images_as_it_is) {
  EXPECT_EQ(shown(row_of({"<image>or<image>?", "b"}, 2), {2, 4}).first, "USER: ##or####?\nASSISTANT: b$");
  EXPECT_EQ(shown(row_of({" a \n<image> \n b <im<image>age> ", " c "}, 2), {1, 1}).first,
            "USER:  a \n# \n b <im#age> \nASSISTANT:  c $");
  EXPECT_EQ(shown(row_of({"", "b"}, 0)).first, "USER: \nASSISTANT: b$");
}

TEST(ConversationTemplate, a_system_text_stands_in_front) {
  const auto [tokens, learned] = shown(row_of({"a", "b"}, 0, "Be brief."));
  EXPECT_EQ(tokens, "Be brief.\nUSER: a\nASSISTANT: b$");
  EXPECT_EQ(std::ranges::count(learned, '.'), 29);
  EXPECT_TRUE(learned.ends_with("b$"));
}

TEST(ConversationTemplate, images_without_a_place_stand_before_the_first_question_in_lines_of_their_own) {
  EXPECT_EQ(shown(row_of({"Why?", "So.", "Why?", "So."}, 2), {1, 2}).first,
            "USER: #\n##\nWhy?\nASSISTANT: So.$USER: Why?\nASSISTANT: So.$");
}

TEST(ConversationTemplate, refuses_other_orders_of_speakers) {
  const Encoding encoding(options_of("bytes"));
  const auto refused = [&](json row) {
    const auto made = encoding.documents(row, {});
    return made ? "accepted" : made.error().message;
  };
  const json both = row_of({"Q", "A", "Q", "A"})["conversations"];
  json twice = both, answers = both, late = both, unknown = both;
  const auto turn = [](const char* from) { return json{{"from", from}, {"value", "T"}}; };
  twice.insert(twice.begin(), turn("human"));
  answers.push_back(turn("gpt"));
  late.insert(late.begin() + 2, turn("system"));
  unknown.insert(unknown.begin() + 2, turn("Human"));
  const char* const turns = ", but questions and answers must take turns, a question first, after at most one system";
  EXPECT_THAT(refused({{"conversations", twice}}), HasSubstr("messages[1] is from \"user\"" + std::string(turns)));
  EXPECT_THAT(refused({{"conversations", answers}}), HasSubstr("messages[4] is from \"assistant\""));
  EXPECT_THAT(refused({{"conversations", late}}), HasSubstr("messages[2] is from \"system\""));
  EXPECT_THAT(refused({{"conversations", unknown}}), HasSubstr("messages[2] is from \"Human\""));
  EXPECT_THAT(refused(row_of({"Q", "<image>"})), HasSubstr("only questions may have it"));
  EXPECT_THAT(refused(row_of({"Q", "A"}, 0, "<image>")), HasSubstr("only questions may have it"));
  EXPECT_THAT(refused(row_of({"Q", ""})), HasSubstr("messages[1] is an empty answer"));
  EXPECT_EQ(refused({{"conversations", json::array({turn("gpt")})}}), "the conversation lacks a question");
  EXPECT_EQ(refused({{"conversations", json::array({turn("system")})}}), "the conversation lacks a question");
  EXPECT_EQ(refused({{"conversations", both}}), "accepted");
}

TEST(ConversationTemplate, the_first_question_is_found_in_its_text) {
  EXPECT_EQ(first_question("USER: \n What?\nASSISTANT: "), "What?");
  EXPECT_EQ(first_question("Be brief.\nUSER: What is\nthis?\nASSISTANT:"), "What is\nthis?");
  EXPECT_EQ(first_question("cut"), "cut");
}

/// Returns a tokenizer of characters like SentencePiece's, with the merge "▁Y". It marks every text between special
/// tokens, or only the first, and puts <s> before a text.
std::filesystem::path marking_tokenizer(const TempFolder& folder, bool first_alone) {
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
  return folder.write("tokenizer.json", R"({"added_tokens": [)" + added + "], " + marks + R"(
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
      "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {)" +
                                            vocabulary + R"(}, "merges": ["▁ Y"]}})");
}

/// Returns the tokens' pieces between bars: images as '#', ends of lines as '/', learned pieces in brackets.
std::string pieces_of(const Encoding& encoding, const json& row, const std::vector<std::int64_t>& patches = {}) {
  const Document document = encoding.document(row, patches);
  std::string out;
  for (std::size_t at = 0; at < document.tokens.size(); ++at) {
    const std::int32_t token = document.tokens[at];
    const std::string piece = token == encoding.image_token() ? "#" : encoding.tokenizer().piece(token);
    out += (out.empty() ? "" : "|") + (document.learned[at] != 0 ? "[" + piece + "]" : piece);
  }
  std::ranges::replace(out, '\n', '/');
  return out;
}

TEST(ConversationTemplate, tokens_are_those_of_the_whole_text_cut_at_its_special_tokens) {  // RK-1
  // Recorded with tokenizers 0.22; <image> is a special token.
  const std::string before = "<s>|▁|U|S|E|R|:|▁|W|h|o|?|/|A|S|S|I|S|T|A|N|T|:|";
  const std::string again = "U|S|E|R|:|▁|W|h|o|?|/|A|S|S|I|S|T|A|N|T|:|▁|[4]|[</s>]";
  const std::string asked = "/|W|h|o|?|/|A|S|S|I|S|T|A|N|T|:|[▁Y]|[e]|[s]|[</s>]";
  for (const bool first_alone : {false, true}) {
    const TempFolder folder;
    const Encoding encoding(options_of(marking_tokenizer(folder, first_alone)));
    const std::string mark = first_alone ? "" : "▁|";
    EXPECT_EQ(pieces_of(encoding, row_of({"Who?", "Yes", "Who?", "4"})),
              before + "[▁Y]|[e]|[s]|[</s>]|" + mark + again);
    EXPECT_EQ(pieces_of(encoding, row_of({"<image>\nWho?", "Yes"}, 1, "Be"), {2}),
              "<s>|▁|B|e|/|U|S|E|R|:|▁|#|#|" + mark + asked);
    EXPECT_EQ(encoding.tokenizer().vocabulary(), 24);
    EXPECT_EQ(encoding.image_token(), 24);
  }
  EXPECT_EQ(Encoding(options_of("bytes")).tokenizer().vocabulary(), 257);
}

TEST(ConversationTemplate, begin_of_text_stands_before_a_conversation_once_and_not_on_request) {
  const TempFolder folder;
  PrepareOptions options = options_of(marking_tokenizer(folder, false));
  const auto begins = [&](const std::string& system) {
    return pieces_of(Encoding(options), row_of({"Who?", "4"}, 0, system));
  };
  EXPECT_THAT(begins(""), testing::StartsWith("<s>|▁|U|S"));
  EXPECT_THAT(begins("<s>B"), testing::StartsWith("<s>|▁|B|/"));
  options.begin_of_text = false;
  EXPECT_THAT(begins(""), testing::StartsWith("▁|U|S|E|R"));
}

TEST(ReservedTokens, are_spelled_found_and_decoded) {
  const ReservedTokens tokens(std::make_unique<ByteTokenizer>());
  const std::vector<std::int32_t> ids{'h', 257, 257, 'i', 256};
  EXPECT_EQ(tokens.encode("h<image><image>i<|end|>"), ids);
  EXPECT_EQ(tokens.decode(ids), "h<image><image>i<|end|>");
  EXPECT_EQ(tokens.decode(ids, true), "hi");
  EXPECT_EQ(tokens.end_of_text(), 256);
  std::vector<std::int32_t> found;
  tokens.find_special("a<|end|>b<image>", [&](std::int32_t token) { found.push_back(token); });
  EXPECT_EQ(found, (std::vector<std::int32_t>{256, 257}));
  EXPECT_EQ(tokens.encode_after_special(""), std::vector<std::int32_t>());
}

}  // namespace
}  // namespace maestro
