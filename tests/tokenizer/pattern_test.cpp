// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "runtime/tokenizer/character.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;

std::vector<std::string> matches(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t from = 0; from < text.size();) {
    const auto match = pattern.next(text, from);
    if (!match) break;
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    from = std::max(match->end, from + 1);
  }
  return found;
}

/// Returns strings that several alternatives of the expressions match.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> pieces{"a",
                                               "b",
                                               "s",
                                               "S",
                                               "t",
                                               "T",
                                               "re",
                                               "LL",
                                               "ve",
                                               "d",
                                               "M",
                                               "'",
                                               "'s",
                                               "'T",
                                               "'\xc5\xbf",
                                               "\xc3\xa9",
                                               "\xc3\x89",
                                               "\xc7\x85",
                                               "\xca\xb0",
                                               "\xe4\xb8\xad",
                                               "\xea\xb0\x80",
                                               "\xe3\x81\x82",
                                               "e\xcc\x81",
                                               "\xcc\x81",
                                               "\xe0\xa4\xbe",
                                               "0",
                                               "12",
                                               "3456",
                                               "\xc2\xbd",
                                               "\xd9\xa1",
                                               "\xe2\x85\xa7",
                                               " ",
                                               " ",
                                               "  ",
                                               "\t",
                                               "\n",
                                               "\r\n",
                                               "\xc2\xa0",
                                               "\xe3\x80\x80",
                                               "\xe2\x80\xa8",
                                               "\xc2\x85",
                                               ".",
                                               ",",
                                               "!?",
                                               "/",
                                               "_",
                                               "<|",
                                               "\xe2\x82\xac",
                                               "\xf0\x9f\x98\x80",
                                               "\xe2\x80\x8d",
                                               "\x01"};
  std::string text;
  for (std::size_t count = random() % 14; count > 0; --count) text += pieces[random() % pieces.size()];
  return text;
}

class WordPatterns : public testing::TestWithParam<std::string_view> {};

TEST_P(WordPatterns, a_matcher_of_its_own_equals_oniguruma) {
  const auto own = make_word_pattern(GetParam());
  ASSERT_NE(own, nullptr);
  const auto oniguruma = make_oniguruma_pattern(std::string(GetParam())).value_or_throw();
  std::mt19937 random(1);
  for (int round = 0; round < 10'000; ++round) {
    const std::string text = random_text(random);
    ASSERT_EQ(matches(*own, text), matches(*oniguruma, text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WordPatterns,
                         testing::Values(word_patterns::gpt2, word_patterns::llama3, word_patterns::qwen2,
                                         word_patterns::qwen3_5, word_patterns::tekken));

TEST(Pattern, other_expressions_run_in_oniguruma) {
  EXPECT_EQ(make_word_pattern(R"(\p{L}+)"), nullptr);
  EXPECT_THAT(matches(*make_pattern(R"(\p{L}+)").value_or_throw(), "a\xc3\xa9 1b"), ElementsAre("a\xc3\xa9", "b"));
  EXPECT_THAT(matches(*make_oniguruma_pattern(R"((?<=x)\d*)").value_or_throw(), "x12"), ElementsAre("12"));
  const auto wrong = make_oniguruma_pattern("(a");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(wrong.error().message, testing::HasSubstr("parenthesis"));
}

// Oniguruma limits only each start of a search: without a limit for the complete search these take 20 s and more.
TEST(Pattern, an_expression_that_steps_back_without_end_is_refused_after_a_moment) {
  const std::string word(4000, 'a');
  for (const char* expression : {"a*a*(?!a|$)", "a*a*(?!a|$)|a", "(a+)+b", "(a|aa)*(?!a|$)", "a+?(?!a|$)a*"}) {
    const auto pattern = make_pattern(expression).value_or_throw();
    const std::clock_t begin = std::clock();  // CPU time, which does not depend on other processes
    try {
      static_cast<void>(pattern->next(word, 0));
      ADD_FAILURE() << expression;
    } catch (const JobError& error) {
      EXPECT_STREQ(error.what(), "a regular expression of the tokenizer fails: retry-limit-in-search over")
          << expression;
    }
    EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC) << expression;
  }
  const auto words = make_pattern("\\w+x?|\\s+(?!\\S)|\\s+").value_or_throw();
  EXPECT_EQ(words->next(std::string(1 << 22, 'a'), 0)->end, std::size_t{1} << 22) << "a long text alone is no reason";
  EXPECT_EQ(make_pattern("b").value_or_throw()->next(std::string(1 << 22, 'a'), 0), std::nullopt);
}

TEST(Pattern, a_literal_matches_its_bytes) {
  EXPECT_THAT(matches(*make_literal_pattern(".a"), "ba.a.a"), ElementsAre(".a", ".a"));
}

TEST(Character, classes_and_utf_8_of_code_points) {
  for (const char32_t point : {U'a', U'\u00e9', U'\u4e2d', U'\U0001F600', U'\U0010FFFF'}) {
    const std::string bytes = utf8_of(point);
    const Character found = character_at(bytes, 0);
    EXPECT_EQ(found.point, point);
    EXPECT_EQ(found.bytes, bytes.size());
    EXPECT_EQ(character_before("x" + bytes, 1 + bytes.size()), 1u);
  }
  std::size_t spaces = 0;
  for (char32_t point = 0; point < 0x110000; ++point) spaces += class_of(point).is(CharacterClass::space) ? 1 : 0;
  EXPECT_EQ(spaces, 25u);
  EXPECT_TRUE(class_of(U'_').word() && class_of(U'_').punctuation() && !class_of(U'-').word());
}

}  // namespace
}  // namespace maestro
