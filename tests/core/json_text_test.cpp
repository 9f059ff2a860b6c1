// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/json_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <sstream>
#include <vector>

namespace maestro {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  const Result<json> read = parse_json(text, "a.json");
  return read ? "accepted" : read.error().message;
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int time = 0; time < times; ++time) text += part;
  return text;
}

TEST(JsonText, reads_what_the_library_reads) {
  const std::string text = R"({"a":[1,-2,3.5,[],{"b":null}],"c":"\u00e9","d":true,"e":{},"f":18446744073709551615})";
  EXPECT_EQ(parse_json(text, "a.json").value_or_throw(), json::parse(text));
  for (const std::string word : {"1", "\"x\"", "null", "[]", "{}"}) {
    EXPECT_EQ(parse_json(word, "a.json").value_or_throw(), json::parse(word));
  }
}

TEST(JsonText, deep_nesting_is_refused_with_its_place_however_deep_it_is) {  // JT-1
  EXPECT_EQ(refusal(repeated("[", 64) + repeated("]", 64)), "accepted");
  for (const int levels : {65, 100'000, 1'000'000}) {
    EXPECT_THAT(refusal(repeated("[", levels) + repeated("]", levels)), testing::StartsWith("a.json: [0][0][0]"))
        << levels;
    EXPECT_THAT(refusal(repeated("[", levels)), testing::EndsWith(": nested deeper than 64 levels")) << levels;
    EXPECT_THAT(refusal(repeated("{\"a\":", levels)), HasSubstr("nested deeper than 64 levels")) << levels;
    EXPECT_LT(refusal(repeated("{\"a\":", levels)).size(), 400u);
  }
}

TEST(JsonText, what_is_not_json_is_one_line_with_line_and_column) {  // JT-2
  EXPECT_THAT(refusal("{\n \"a\": [,]}"),
              HasSubstr("a.json is not valid JSON: parse error at line 2, column 8: syntax error"));
  for (const std::string text : {"", "[", "{} {}", "[1,]", "NaN", "[\"\xff\"]", "\x1b[K"}) {
    EXPECT_THAT(refusal(text), testing::StartsWith("a.json is not valid JSON: parse error at column ")) << text;
    EXPECT_EQ(refusal(text).find_first_of("\n\x1b"), std::string::npos) << text;
  }
  EXPECT_THAT(refusal("[\"a\nb\"]"), HasSubstr("at line 2, column 0"));
  EXPECT_LT(refusal("[\"" + std::string(100'000, 'x')).size(), 400u);
}

TEST(JsonText, a_failed_allocation_is_an_error_too) {  // JT-2
  std::istringstream stream("[1]");
  const Status failed = parse_json_list({stream, "a.json", "things"}, [](json&&) { throw std::bad_alloc(); });
  EXPECT_EQ(failed.error().message, "a.json: not enough memory to read it");
}

TEST(JsonText, a_repeated_key_is_refused_with_its_place) {  // JT-3
  EXPECT_EQ(refusal(R"({"s":[{"id":1},{"id":2,"id":3}]})"), "a.json: s[1].id: this key stands twice in its object");
  EXPECT_EQ(refusal(R"([{"a":{"x":1}},{"a":{"x":1}}])"), "accepted") << "another object may have it";
}

TEST(JsonText, a_number_beyond_double_is_refused_with_key_and_byte) {  // JT-4
  EXPECT_EQ(refusal(R"({"a":[1,{"lr":1e999}]})"), "a.json: a[1].lr: the number 1e999 at byte 19 is out of range");
  EXPECT_EQ(refusal("-1e999"), "a.json: the number -1e999 at byte 6 is out of range");
  EXPECT_THAT(refusal("[1," + std::string(400, '9') + "]"), HasSubstr("a.json: [1]: the number 9999"));
  EXPECT_THAT(refusal("[1," + std::string(400, '9') + "]"), HasSubstr("9... at byte 403 is out of range"));
}

TEST(JsonText, a_list_is_handed_out_by_element) {
  std::istringstream text(R"([{"a": [1]}, 2, []])");
  std::vector<json> elements;
  EXPECT_TRUE(parse_json_list({text, "a.json", "things"}, [&](json&& element) { elements.push_back(element); }).ok());
  EXPECT_EQ(elements, (std::vector<json>{{{"a", {1}}}, 2, json::array()}));
}

TEST(JsonText, a_list_is_refused_as_a_document_is) {
  const auto refusal_of = [](const std::string& text) {
    std::istringstream stream(text);
    const Status read = parse_json_list({stream, "a.json", "things"}, [](json&&) {});
    return read ? "accepted" : read.error().message;
  };
  EXPECT_EQ(refusal_of("[1, [2, {\"b\": 1e999}]]"), "a.json: [1][1].b: the number 1e999 at byte 19 is out of range");
  EXPECT_THAT(refusal_of("[0, " + repeated("[", 100'000)), HasSubstr("a.json: [1][0]"));
  for (const std::string text : {"3", "{\"a\": 1}", "null"}) {
    EXPECT_EQ(refusal_of(text), "a.json is not a list of things: its JSON starts with something other than [") << text;
  }
  std::istringstream stream("[1]");
  const Status failed =
      parse_json_list({stream, "a.json", "things"}, [](json&&) { throw JobError("no", ErrorCode::not_found); });
  EXPECT_EQ(failed.error().code, ErrorCode::not_found);
}

TEST(JsonText, an_object_is_handed_out_by_member_and_refused_as_a_document_is) {
  std::vector<std::string> seen;
  const auto read = [&](const std::string& text) {
    seen.clear();
    const Status parsed = parse_json_members(
        text, "a.json", [&](const std::string& key, json&& value) { seen.push_back(key + "=" + value.dump()); });
    return parsed.ok() ? "accepted" : parsed.error().message;
  };
  EXPECT_EQ(read(R"({"b": {"x": [1, {}]}, "a": 2, "": [[]], "n": null})"), "accepted");
  EXPECT_EQ(seen, (std::vector<std::string>{R"(b={"x":[1,{}]})", "a=2", "=[[]]", "n=null"}));
  EXPECT_EQ(read("{}"), "accepted");
  for (const char* text : {"[]", "1", "null", "\"x\""}) EXPECT_EQ(read(text), "a.json is not a JSON object") << text;
  EXPECT_THAT(read(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("a.json: a: this key stands twice"));  // JT-3
  EXPECT_THAT(read(R"({"a": {"b": 1, "b": 2}})"), HasSubstr("this key stands twice"));
  EXPECT_THAT(read(R"({"a": 1)"), HasSubstr("a.json is not valid JSON"));
  const Status refused =
      parse_json_members(R"({"a": 1})", "a.json", [](const std::string&, json&&) { throw JobError("not this one"); });
  EXPECT_EQ(refused.error().message, "not this one");
}

TEST(JsonText, a_value_in_a_message_is_short_and_in_one_line) {
  EXPECT_EQ(shown(json{{"a", {1, "x\ny"}}}), R"({"a":[1,"x\ny"]})");
  EXPECT_EQ(shown(json(std::string(5000, 'x'))).size(), 123u);
  EXPECT_EQ(shown(json("\x7f")), "\"\\x7f\"");
}

}  // namespace
}  // namespace maestro
