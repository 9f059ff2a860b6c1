// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TokenizerJson : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<Tokenizer>> read(const json& content) { return read_text(content.dump()); }
  Result<std::unique_ptr<Tokenizer>> read_text(const std::string& content) {
    std::ofstream(file_) << content;
    return read_tokenizer_json(file_);
  }
  std::vector<std::int32_t> ids(const json& content, std::string_view text) {
    return read(content).value_or_throw()->encode(text);
  }
  /// Returns the error for the smallest file with the value at a JSON pointer. It begins with the file.
  std::string refusal(const char* pointer, const json& value) {
    json changed = smallest();
    changed[json::json_pointer(pointer)] = value;
    const auto made = read(changed);
    if (made) return "accepted";
    EXPECT_THAT(made.error().message, testing::StartsWith(file_.string() + ": "));
    return made.error().message.substr(file_.string().size() + 2);
  }
  /// Returns a file with tokens a, b, ab and the added token <x>.
  static json smallest() {
    return json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
                           "added_tokens": [{"id": 3, "content": "<x>", "special": true, "normalized": false}]})");
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("tokenizer_json_" + std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::filesystem::path file_ = folder_ / "tokenizer.json";
};

TEST_F(TokenizerJson, a_text_after_a_special_token_lacks_the_mark_of_a_first_word) {
  json file = smallest();
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "b"}, {"prepend_scheme", "first"}, {"split", false}};
  const auto tokenizer = read(file).value_or_throw();
  EXPECT_THAT(tokenizer->encode("a<x>a"), ElementsAre(1, 0, 3, 0));
  EXPECT_THAT(tokenizer->encode_after_special("a"), ElementsAre(0)) << "as after <x>";
  EXPECT_THAT(ByteTokenizer().encode_after_special("a"), ElementsAre('a'));
}

TEST_F(TokenizerJson, the_smallest_file_is_read) {
  const auto tokenizer = read(smallest()).value_or_throw();
  EXPECT_EQ(tokenizer->name(), file_.string());
  EXPECT_EQ(tokenizer->vocabulary(), 4);
  EXPECT_THAT(tokenizer->encode("abba<x>a"), ElementsAre(2, 1, 0, 3, 0));
  EXPECT_THAT(tokenizer->encode("aab\xff"), ElementsAre(0, 2)) << "bytes that are no UTF-8 become U+FFFD";
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  EXPECT_EQ(tokenizer->piece(3), "<x>");
  EXPECT_EQ(tokenizer->piece(4), "\xef\xbf\xbd");
  EXPECT_EQ(tokenizer->piece(-1), "\xef\xbf\xbd");
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 3, 9}, false), "ab <x> \xef\xbf\xbd");
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 3, 0}, true), "ab a");
}

TEST_F(TokenizerJson, special_tokens_that_a_text_spells_are_found) {
  json content = smallest();
  content["added_tokens"].push_back(json::parse(R"({"id": 4, "content": "<y>", "special": false})"));
  const auto tokenizer = read(content).value_or_throw();
  const auto found = [](const Tokenizer& in, std::string_view text) {
    std::vector<std::int32_t> tokens;
    in.find_special(text, [&](std::int32_t token) { tokens.push_back(token); });
    return tokens;
  };
  EXPECT_THAT(found(*tokenizer, "a<x>b<y><x><x"), ElementsAre(3, 3));
  EXPECT_THAT(found(*tokenizer, "ab<y>"), ElementsAre()) << "an added token that is not special";
  EXPECT_THAT(found(ByteTokenizer(), "a<x>"), ElementsAre());
}

TEST_F(TokenizerJson, merges_are_texts_or_pairs) {
  json content = smallest();
  content["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_THAT(ids(content, "ab"), ElementsAre(2));
}

TEST_F(TokenizerJson, added_tokens_are_found_before_or_behind_the_normalizer) {
  json content = smallest();
  content["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "B"}}}, {"content", "b"}};
  content["added_tokens"] = json::parse(R"([{"id": 3, "content": "bB", "normalized": false},
                                            {"id": 4, "content": "Ba", "normalized": true}])");
  EXPECT_THAT(ids(content, "abB"), ElementsAre(0, 3));
  EXPECT_THAT(ids(content, "bBb"), ElementsAre(3, 1));
  EXPECT_THAT(ids(content, "Baba"), ElementsAre(4, 4)) << "found as its content is normalized";
}

TEST_F(TokenizerJson, special_tokens_stand_around_a_text_on_request) {
  json content = smallest();
  content["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "a", "type_id": 0}}],
     "special_tokens": {"<x>": {"id": "<x>", "ids": [3]}, "a": {"id": "a", "ids": [0, 1]}}}]})");
  const auto tokenizer = read(content).value_or_throw();
  EXPECT_THAT(tokenizer->encode_special("b"), ElementsAre(3, 1, 0, 1));
  EXPECT_THAT(tokenizer->encode("b"), ElementsAre(1));
  EXPECT_THAT(tokenizer->begin_of_text(), ElementsAre(3));
  EXPECT_THAT(tokenizer->encode_text("b", true), ElementsAre(3, 1));
  EXPECT_THAT(tokenizer->encode_text("<x>b", true), ElementsAre(3, 1)) << "a text that spells it gets no second one";
  EXPECT_THAT(tokenizer->encode_text("", true), ElementsAre(3));
  EXPECT_THAT(tokenizer->encode_text("b", false), ElementsAre(1));
  EXPECT_THAT(tokenizer->encode_text(std::string(10'000, 'b'), true), testing::SizeIs(10'001));
}

TEST_F(TokenizerJson, the_begin_of_a_text_may_be_several_tokens) {
  json content = smallest();
  content["post_processor"] = json::parse(R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<x>"}}, {"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}],
     "special_tokens": {"<x>": {"ids": [3]}, "a": {"ids": [0]}}})");
  const auto tokenizer = read(content).value_or_throw();
  EXPECT_THAT(tokenizer->encode_text("b", true), ElementsAre(3, 0, 1));
  EXPECT_THAT(tokenizer->encode_text("<x>ab", true), ElementsAre(3, 0, 3, 2)) << "\"ab\" is another token than \"a\"";
  EXPECT_THAT(tokenizer->encode_text("<x>aa", true), ElementsAre(3, 0, 0));
}

TEST_F(TokenizerJson, a_metaspace_of_an_older_file_has_a_flag) {
  json content = smallest();
  content["model"]["vocab"]["_"] = 3;
  content["added_tokens"] = nullptr;
  content["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}};
  EXPECT_THAT(ids(content, "a b"), ElementsAre(0, 3, 1));
  content["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(ids(content, "a b"), ElementsAre(3, 0, 3, 1));
}

TEST_F(TokenizerJson, a_type_that_is_not_supported_is_named_with_its_key) {
  EXPECT_THAT(refusal("/model/type", "WordPiece"), AllOf(HasSubstr("model.type = \"WordPiece\""), HasSubstr("BPE")));
  EXPECT_THAT(refusal("/normalizer", {{"type", "Lowercase"}}),
              AllOf(HasSubstr("normalizer.type = \"Lowercase\" is not supported"), HasSubstr("NFC")));
  EXPECT_THAT(refusal("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
              AllOf(HasSubstr("pre_tokenizer.type = \"BertPreTokenizer\""), HasSubstr("ByteLevel")));
  EXPECT_THAT(refusal("/pre_tokenizer", json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"},
                                                        {"type": "New"}]})")),
              HasSubstr("pre_tokenizer.pretokenizers[1].type = \"New\""));
  EXPECT_THAT(refusal("/pre_tokenizer", json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
                                                        {"type": "Digits"}]})")),
              HasSubstr("pre_tokenizer.pretokenizers[1]: it follows ByteLevel"));
  EXPECT_THAT(refusal("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder.type = \"WordPiece\""));
  EXPECT_THAT(refusal("/post_processor", {{"type", "BertProcessing"}}),
              AllOf(HasSubstr("post_processor.type = \"BertProcessing\""), HasSubstr("TemplateProcessing")));
}

TEST_F(TokenizerJson, options_of_the_model_that_are_not_supported_are_named) {
  EXPECT_THAT(refusal("/model/dropout", 0.1), HasSubstr("model.dropout = 0.1 is not supported"));
  EXPECT_EQ(refusal("/model/dropout", 0.0), "accepted");
  EXPECT_THAT(refusal("/model/continuing_subword_prefix", "##"),
              HasSubstr("model.continuing_subword_prefix = \"##\" is not supported"));
  EXPECT_THAT(refusal("/model/end_of_word_suffix", "</w>"), HasSubstr("model.end_of_word_suffix"));
  EXPECT_EQ(refusal("/model/end_of_word_suffix", ""), "accepted");
  EXPECT_THAT(refusal("/model/unk_token", "?"), HasSubstr("model.unk_token = \"?\""));
  EXPECT_THAT(refusal("/model/byte_fallback", 1), HasSubstr("model.byte_fallback: expected true or false, got 1"));
}

TEST_F(TokenizerJson, a_wrong_merge_is_named_with_its_index) {
  EXPECT_THAT(refusal("/model/merges/0", "ab"),
              HasSubstr("model.merges[0]: expected the two parts of a merge with a space"));
  EXPECT_THAT(refusal("/model/merges/0", "a b ab"), HasSubstr("model.merges[0]"));
  EXPECT_THAT(refusal("/model/merges/0", json::parse(R"(["a"])")), HasSubstr("model.merges[0]"));
  EXPECT_THAT(refusal("/model/merges/0", 7), HasSubstr("model.merges[0]: expected a string, got 7"));
  EXPECT_THAT(refusal("/model/merges/0", "b a"), HasSubstr("model.merges[0] needs the token \"ba\""));
  EXPECT_THAT(refusal("/model/merges", nullptr), HasSubstr("model.merges"));
}

TEST_F(TokenizerJson, ids_are_unique_and_of_the_vocabulary) {
  EXPECT_THAT(refusal("/model/vocab/b", 0), AllOf(HasSubstr("same id 0"), HasSubstr("\"a\""), HasSubstr("\"b\"")));
  EXPECT_THAT(refusal("/model/vocab/b", -1),
              HasSubstr("model.vocab.b: expected a whole number from 0 to 16777215, got -1"));
  EXPECT_THAT(refusal("/model/vocab/b", 1 << 24), HasSubstr("model.vocab.b"));
  EXPECT_THAT(refusal("/model/vocab/b", 1.5), HasSubstr("model.vocab.b"));
  EXPECT_THAT(refusal("/model/vocab", json::array()), HasSubstr("model.vocab"));
  EXPECT_THAT(refusal("/added_tokens/0/id", 1), HasSubstr("same id 1"));
  EXPECT_THAT(refusal("/added_tokens/0/content", "ab"),
              HasSubstr("added_tokens[0].id = 3 differs from model.vocab, which has \"ab\" as 2"));
  EXPECT_THAT(refusal("/added_tokens/0/id", nullptr), HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(refusal("/post_processor", json::parse(R"({"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<y>"}}], "special_tokens": {"<y>": {"ids": [4]}}})")),
              HasSubstr("post_processor: no token has the id 4"));
}

TEST_F(TokenizerJson, wrong_patterns_and_counts_are_named) {
  json split = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(refusal("/pre_tokenizer", split), HasSubstr("pre_tokenizer.pattern.Regex: no regular expression"));
  split["pattern"] = {{"String", ""}};
  EXPECT_THAT(refusal("/pre_tokenizer", split),
              HasSubstr("pre_tokenizer.pattern.String: expected a text with characters, got \"\""));
  split["pattern"] = {{"String", "a"}};
  split["behavior"] = "Never";
  EXPECT_THAT(refusal("/pre_tokenizer", split), HasSubstr("pre_tokenizer.behavior = \"Never\""));
  EXPECT_THAT(refusal("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", ""}}),
              HasSubstr("pre_tokenizer.replacement: expected a text with characters, got \"\""));
  EXPECT_THAT(refusal("/decoder", {{"type", "Metaspace"}, {"replacement", ""}}),
              HasSubstr("decoder.replacement: expected a text with characters, got \"\""));
  EXPECT_THAT(refusal("/decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}}),
              HasSubstr("decoder.start: expected a whole number from 0"));
  EXPECT_THAT(refusal("/decoder", {{"type", "Strip"}, {"content", ""}, {"start", 1}}),
              HasSubstr("decoder.content: expected a text with characters, got \"\""));
}

TEST_F(TokenizerJson, a_file_of_another_kind_is_refused) {
  EXPECT_THAT(read_text("{").error().message, HasSubstr(file_.string()));
  EXPECT_THAT(read_text("[]").error().message, HasSubstr(file_.string()));
  EXPECT_THAT(read_text("{}").error().message, HasSubstr("model"));
  std::filesystem::remove(file_);
  EXPECT_THAT(read_tokenizer_json(file_).error().message, HasSubstr(file_.string()));
}

}  // namespace
}  // namespace maestro
