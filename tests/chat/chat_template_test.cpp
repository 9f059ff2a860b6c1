// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/chat_template.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Messages = std::vector<ChatMessage>;

const ChatContext tokens{"<s>", "</s>"};

std::string contents(const std::string& file) {
  std::ifstream in(std::string(MAESTRO_SOURCE_DIR) + "/tests/chat/references/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string rendered(const std::string& source, const Messages& messages = {{"user", "hi"}}) {
  return ChatTemplate(source, "t").render_text(messages, tokens);
}

std::string refusal(const std::string& source, const Messages& messages = {{"user", "hi"}}) {
  try {
    return "accepted: " + rendered(source, messages);
  } catch (const JobError& error) {
    return error.what();
  }
}

/// CJ-1.
TEST(ChatTemplate, texts_equal_those_of_jinja) {
  const json expected = json::parse(contents("expected.json"));
  ASSERT_GE(expected.at("texts").size(), 13U);
  for (const auto& [name, texts] : expected.at("texts").items()) {
    const ChatTemplate chat(contents(name + ".jinja"), name);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(name + ", conversation " + std::to_string(i));
      Messages messages;
      for (const json& each : expected.at("conversations").at(i))
        messages.push_back({each.at("role"), each.at("content")});
      if (texts[i].is_null()) {
        EXPECT_THROW((void)chat.render_text(messages, tokens), JobError);
      } else {
        EXPECT_EQ(chat.render_text(messages, tokens), texts[i].get<std::string>());
      }
    }
  }
}

/// CJ-1.
TEST(ChatTemplate, expressions_equal_those_of_jinja) {
  const ordered_json expected = ordered_json::parse(contents("expressions.json"));
  Messages messages;
  for (const ordered_json& each : expected.at("messages")) {
    messages.push_back({each.at("role"), each.at("content"), each.dump()});
  }
  ChatContext context = tokens;
  context.date = std::chrono::sys_days(std::chrono::year(2026) / 5 / 28) + std::chrono::seconds(73'600);
  ASSERT_GE(expected.at("texts").size(), 230U);
  for (const ordered_json& pair : expected.at("texts")) {
    const std::string source = pair[0];
    SCOPED_TRACE(source);
    const auto text = [&] { return ChatTemplate(source, "t").render_text(messages, context); };
    if (pair[1].is_null()) {
      EXPECT_THROW((void)text(), JobError);
    } else {
      EXPECT_EQ(text(), pair[1].get<std::string>());
    }
  }
}

TEST(ChatTemplate, the_parts_that_a_template_marks_for_training_are_named_by_their_bytes) {
  const ChatTemplate chat(
      "\u00e9{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}", "t");
  EXPECT_TRUE(chat.uses_generation());
  const RenderedChat made = chat.render(Messages{{"user", "hi"}, {"user", ""}, {"user", "yes"}}, {});
  EXPECT_EQ(made.text, "\u00e9hi;;yes;");
  EXPECT_EQ(made.generated, (std::vector<ByteRange>{{2, 4}, {6, 9}}));
  EXPECT_FALSE(ChatTemplate("x", "t").uses_generation());
}

TEST(ChatTemplate, marked_parts_inside_of_macros_are_found) {
  const ChatTemplate chat(
      "{% macro turn(m) %}<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %}</>{% endmacro %}"
      "{% for m in messages %}{{ turn(m) }}{% endfor %}",
      "t");
  const RenderedChat made = chat.render(Messages{{"a", "hi"}, {"b", "yes"}}, {});
  EXPECT_EQ(made.text, "<a>hi</><b>yes</>");
  EXPECT_EQ(made.generated, (std::vector<ByteRange>{{3, 5}, {11, 14}}));
}

TEST(ChatTemplate, marked_parts_inside_of_each_other_are_one) {
  const ChatTemplate chat(
      "{% generation %}a{% endgeneration %}{% generation %}{% generation %}b{% endgeneration %}c{% endgeneration %}d",
      "t");
  EXPECT_EQ(chat.render({}, {}).generated, (std::vector<ByteRange>{{0, 3}}));
}

TEST(ChatTemplate, marked_parts_of_a_text_that_is_changed_afterwards_are_refused) {
  const ChatTemplate chat("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x | upper }}", "t");
  EXPECT_EQ(chat.render_text({}, {}), "A");
  try {
    (void)chat.render({}, {});
    FAIL();
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(),
                 "t: line 1 of the chat template: a {% generation %} block writes to a text that the template then "
                 "uses as a value, so that its place in the conversation is unknown");
  }
}

TEST(ChatTemplate, keys_keep_their_order) {
  const ChatTemplate chat("{{ messages[0].z | tojson }}{{ tools | tojson }}{{ messages[0] | list }}", "t");
  const Messages messages{{"a", "x", R"({"z": {"b": 1, "a": [1.0, 1e-7, 10000000000000000.0, "\u00e9"]}, "y": 1})"}};
  EXPECT_EQ(chat.render_text(messages, {.tools = R"([{"q": 1, "p": null, "r": false}])"}),
            "{\"b\": 1, \"a\": [1.0, 1e-07, 1e+16, \"\u00e9\"]}[{\"q\": 1, \"p\": null, \"r\": false}]"
            "['role', 'content', 'z', 'y']");
}

TEST(ChatTemplate, fields_tools_and_variables_that_are_wrong_are_refused) {
  const ChatTemplate chat("x", "t");
  const auto problem = [&](const ChatMessage& message, const ChatContext& context) {
    try {
      return chat.render_text(Messages{message}, context);
    } catch (const JobError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(problem({"user", "a", "{\"b\": }"}, {}), "messages[0]: it is not valid JSON at byte 7");
  EXPECT_EQ(problem({"user", "a", "[]"}, {}), "messages[0] is a list; it must be a mapping");
  EXPECT_EQ(problem({"user", "a"}, {.tools = "{}"}), "tools is a mapping; it must be a list");
  EXPECT_EQ(problem({"user", "a"}, {.variables = R"({"messages": 1})"}), "variables: messages is not a variable");
  EXPECT_EQ(problem({"user", "a", R"({"n": 18446744073709551616})"}, {}),
            "messages[0]: the number 18446744073709551616 is beyond 64 bits");
  EXPECT_EQ(problem({"user", "\xff"}, {}), "messages[0].content is not UTF-8");
}

TEST(ChatTemplate, other_keys_of_messages_tools_and_variables_reach_the_template) {
  const ChatTemplate chat(
      "{{ messages[0].thought }}|{{ messages[0].content is none }}|{{ tools[0].name }}|{{ enable_thinking }}", "t");
  const Messages messages{{"assistant", "x", R"({"thought": "hm", "content": null})"}};
  EXPECT_EQ(chat.render_text(messages, {.tools = R"([{"name": "f"}])", .variables = R"({"enable_thinking": false})"}),
            "hm|True|f|False");
}

TEST(ChatTemplate, the_use_of_a_date_is_known_before_a_rendering) {
  EXPECT_TRUE(ChatTemplate("{% if strftime_now is defined %}x{% endif %}", "t").uses_date());
  EXPECT_FALSE(ChatTemplate("strftime_now", "t").uses_date());
}

TEST(ChatTemplate, tokens_that_a_model_lacks_are_undefined) {
  EXPECT_EQ(ChatTemplate("{{ bos_token }}{{ bos_token is defined }}", "t").render_text({}, {}), "False");
}

TEST(ChatTemplate, refused_messages_are_named_with_the_reason) {
  EXPECT_EQ(refusal("\n{{ raise_exception('No ' + messages[0].role) }}"),
            "t: line 2 of the chat template: it refuses the messages: No user");
}

constexpr const char* way_out = " is not supported; without --chat, --prompt takes text that has its format already";

TEST(ChatTemplate, constructs_that_are_not_supported_are_refused_by_name_and_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n{% include 'x' %}", "line 2 of the chat template: {% include %}"},
      {"{% import 'x' as y %}", "line 1 of the chat template: {% import %}"},
      {"{% do 1 %}", "line 1 of the chat template: {% do %}"},
      {"{{ 1 | groupby('a') }}", "line 1 of the chat template: the filter groupby"},
      {"{{ 1 is strange }}", "line 1 of the chat template: the test strange"},
      {"{{ 'a'.casefold() }}", "line 1 of the chat template: the method casefold"},
      {"{{ lipsum() }}", "line 1 of the chat template: the function lipsum"},
      {"{{ strftime_now('%d') }}", "line 1 of the chat template: the function strftime_now"},
      {"{{ [1] | map('string') }}", "line 1 of the chat template: the output of an iterator"},
      {"{{ '\\N{BULLET}' }}", "line 1 of the chat template: escape \"\\N\""}};
  for (const auto& [source, construct] : cases) EXPECT_EQ(refusal(source), std::string("t: ") + construct + way_out);
}

TEST(ChatTemplate, macros_that_are_called_wrongly_are_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
       "line 1 of the chat template: the macro m has too many arguments"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "line 1 of the chat template: the macro m has no parameter b"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
       "line 1 of the chat template: macros call each other more than 200 deep"},
      {"{% macro m(a=1, b) %}{% endmacro %}",
       "line 1 of the chat template: a parameter without a default follows one with a default"}};
  for (const auto& [source, problem] : cases) EXPECT_EQ(refusal(source), std::string("t: ") + problem);
}

TEST(ChatTemplate, a_construct_that_is_not_reached_is_not_refused) {
  EXPECT_EQ(rendered("{% if tools %}{{ tools | groupby('x') }}{% endif %}x"), "x");
}

TEST(ChatTemplate, damaged_templates_are_refused_with_their_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% if true %}b", "line 2 of the chat template: a tag lacks {% endif %}"},
      {"{% endif %}", "line 1 of the chat template: {% endif %} is without its beginning"},
      {"{% for a in [] %}{% endif %}",
       "line 1 of the chat template: {% endif %} is found, but {% endfor %} is missing"},
      {"\n{{ 'a }}", "line 2 of the chat template: a string is not closed"},
      {"{{ 1", "line 1 of the chat template: a tag is not closed"},
      {"{# a", "line 1 of the chat template: a comment {# is not closed"},
      {"{{ 1 1 }}", "line 1 of the chat template: a tag continues with 1"},
      {"{{ }}", "line 1 of the chat template: a value is missing before the end of the tag"},
      {"{{ ? }}", "line 1 of the chat template: \"?\" is not part of an expression"},
      {"{% break %}", "line 1 of the chat template: {% break %} is outside of a loop"},
      {"{{ nothing.x }}", "line 1 of the chat template: \"x\" is asked of an undefined value"},
      {"{{ namespace(a=1, 2) }}", "line 1 of the chat template: an argument without a name follows one with a name"},
      {"{{ 'a' + 1 }}", "line 1 of the chat template: \"+\" does not take a text and a number"},
      {"{{ 1 // 0 }}", "line 1 of the chat template: a division by zero"},
      {"{{ 3000000000 * 4000000000 }}", "line 1 of the chat template: a whole number is beyond 64 bits"},
      {"{{ unknown(1) }}", "line 1 of the chat template: \"unknown\" is called, but it is not defined"},
      {"{{ [1].append(2) }}", "line 1 of the chat template: a list has no method \"append\" that a template may call"},
      {"{% set ns = namespace(_a=1) %}",
       "line 1 of the chat template: the function namespace has a name that begins with _"},
      {"\xff", "line 1 of the chat template: it is not UTF-8"}};
  for (const auto& [source, problem] : cases) EXPECT_EQ(refusal(source), std::string("t: ") + problem);
}

/// CJ-2.
TEST(ChatTemplate, depth_and_size_are_bounded) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string parts = "t: line 1 of the chat template: a tag has more than 2,000 parts";
  EXPECT_EQ(refusal("{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}"), parts);
  EXPECT_EQ(refusal("{{ " + repeated("not ", 100'000) + "1 }}"), parts);
  EXPECT_EQ(refusal("{{ 1" + repeated(" + 1", 100'000) + " }}"), parts);
  EXPECT_EQ(refusal("{{ a" + repeated(".a", 100'000) + " }}"), parts);
  EXPECT_EQ(refusal("{{ 1" + repeated(" if 1 else 1", 100'000) + " }}"), parts);
  EXPECT_EQ(refusal("{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}"), parts);
  EXPECT_EQ(refusal(repeated("{% if 1 %}", 100'000)),
            "t: line 1 of the chat template: statements are nested deeper than 64 levels");
  EXPECT_EQ(
      refusal("{% set n = namespace(t='0123456789') %}{% for i in range(100) %}{% set n.t = n.t + n.t %}{% endfor %}"),
      "t: line 1 of the chat template: a text is longer than 16 MiB");
  EXPECT_EQ(refusal("{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}{% endfor %}"),
            "t: line 1 of the chat template: a value is nested deeper than 64 levels");
  EXPECT_EQ(refusal("{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
                    "{{ n.x }}"),
            "t: line 1 of the chat template: a value is too large to be compared or printed");
  EXPECT_EQ(refusal("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
            "t: line 1 of the chat template: it loops too often, or makes values that are too large");
  EXPECT_EQ(refusal("{% macro m() %}{{ " + repeated("not ", 900) + "m() }}{% endmacro %}{{ m() }}"),
            "t: line 1 of the chat template: expressions and macros are nested deeper than 2,500 levels");
  EXPECT_EQ(refusal("{{ range(1000000000) | length }}"),
            "t: line 1 of the chat template: the function range has more than 100,000 numbers");
}

}  // namespace
}  // namespace maestro
