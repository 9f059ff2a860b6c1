// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/json_value.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using nlohmann::json;

const std::string file = "a.json";

/// Returns the error of `read` for the document in `text`.
template <class Read>
std::string refusal(const std::string& text, const Read& read) {
  const auto done = read_json(text, file, ErrorCode::corrupt, [&](const JsonValue& root) { return read(root), true; });
  return done ? "accepted" : done.error().message;
}

TEST(JsonValue, a_refusal_has_file_path_expectation_and_value) {
  const std::string text = R"({"samples": [{"id": 7}, {"id": 2.5, "name": null}]})";
  const auto second = [](const JsonValue& root) { return root.at("samples").items().at(1); };
  const auto refused = [&](const auto& read) {
    return refusal(text, [&](const JsonValue& root) { return read(second(root)); });
  };
  EXPECT_EQ(refused([](const JsonValue& it) { return it.at("id").whole_number(0, 7); }),
            "a.json: samples[1].id: expected a whole number from 0 to 7, got 2.5");
  EXPECT_EQ(refused([](const JsonValue& it) { return it.at("id").text(); }),
            "a.json: samples[1].id: expected a string, got 2.5");
  EXPECT_EQ(refused([](const JsonValue& it) { return it.at("id").flag(); }),
            "a.json: samples[1].id: expected true or false, got 2.5");
  EXPECT_EQ(refused([](const JsonValue& it) { return it.at("id").number(3); }),
            "a.json: samples[1].id: expected a number from 3 on, got 2.5");
  EXPECT_EQ(refused([](const JsonValue& it) { return it.at("id").at("x").text(); }),
            "a.json: samples[1].id: expected an object, got 2.5");
  EXPECT_EQ(refused([](const JsonValue& it) { return it.items().size(); }),
            R"(a.json: samples[1]: expected a list, got {"id":2.5,"name":null})");
  EXPECT_EQ(refused([](const JsonValue& it) { return it.at("ID").text(); }), "a.json: samples[1].ID is missing");
  EXPECT_EQ(refused([](const JsonValue& it) {
              return it.allow_keys({"id", "names"}), 0;
            }),
            "a.json: samples[1].name: unknown key; did you mean 'names'?");
  EXPECT_EQ(refusal("[]", [](const JsonValue& root) { return root.at("x").text(); }),
            "a.json: expected an object, got []");
  EXPECT_EQ(refusal(R"({"a": "x"})",
                    [](const JsonValue& root) {
                      return root.at("a").choice<int>({{"y", 1}, {"z", 2}});
                    }),
            R"(a.json: a = "x" is not supported; these are: y, z)");
}

TEST(JsonValue, null_is_a_value_unless_other_programs_leave_it_out) {
  const json document = json::parse(R"({"a": null})");
  const JsonValue root(document, file);
  EXPECT_TRUE(root.at("a") && root.at("a").null());
  EXPECT_FALSE(root.find("a") || root.at("b"));
  EXPECT_EQ(root.find("a").text("x") + root.at("b").text("y"), "xy");
  EXPECT_EQ(refusal(R"({"a": null})", [](const JsonValue& it) { return it.at("a").text("x"); }),
            "a.json: a: expected a string, got null");
}

TEST(JsonValue, numbers_that_are_not_whole_or_too_large_are_refused) {
  const auto count = [](const std::string& text, std::uint64_t most) {
    const json document = json::parse(text);
    return JsonValue(document, file).count(most);
  };
  EXPECT_EQ(count("18446744073709551615", UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(count("7", 7), 7U);
  for (const char* text : {"8", "-1", "2.5", "2e115", "\"3\"", "null"})
    EXPECT_THROW((void)count(text, 7), JobError) << text;
  EXPECT_EQ(refusal("9223372036854775808", [](const JsonValue& root) { return root.whole_number(1); }),
            "a.json: expected a whole number from 1 on, got 9223372036854775808");
}

}  // namespace
}  // namespace maestro
