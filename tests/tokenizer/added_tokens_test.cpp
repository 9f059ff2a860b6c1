// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/added_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

/// Returns the pieces of `text`: added tokens as [text], preceded by their id.
std::vector<std::string> pieces(const std::vector<AddedToken>& tokens, std::string_view text) {
  std::vector<std::string> contents;
  for (const AddedToken& token : tokens) contents.push_back(token.content);
  std::vector<std::string> found;
  AddedTokens(tokens, contents).split(text, [&](std::int32_t token, std::size_t begin, std::size_t end) {
    const std::string piece(text.substr(begin, end - begin));
    found.push_back(token == AddedTokens::no_token ? piece : std::to_string(token) + "[" + piece + "]");
  });
  return found;
}

using testing::ElementsAre;

// AT-1
TEST(AddedTokens, the_leftmost_token_is_found_and_the_longest_of_those_that_begin_there) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "<a>"},
                                       {.id = 2, .content = "<a><b>"},
                                       {.id = 3, .content = "b><c"},
                                       {.id = 4, .content = "\n\n"}};
  EXPECT_THAT(pieces(tokens, "x<a><b><c>"), ElementsAre("x", "2[<a><b>]", "<c>"));
  EXPECT_THAT(pieces(tokens, "<a><b"), ElementsAre("1[<a>]", "<b"));
  EXPECT_THAT(pieces(tokens, "<<a>"), ElementsAre("<", "1[<a>]"));
  EXPECT_THAT(pieces(tokens, "<b><c>"), ElementsAre("<", "3[b><c]", ">"));
  EXPECT_THAT(pieces(tokens, "\n\n\n\n\n"), ElementsAre("4[\n\n]", "4[\n\n]", "\n"));
}

TEST(AddedTokens, a_token_takes_the_white_space_of_its_sides) {
  const std::vector<AddedToken> left{{.id = 1, .content = "<a>", .left_strip = true}};
  const std::vector<AddedToken> right{{.id = 1, .content = "<a>", .right_strip = true}};
  EXPECT_THAT(pieces(left, "x \xe3\x80\x80<a> y"), ElementsAre("x", "1[ \xe3\x80\x80<a>]", " y"));
  EXPECT_THAT(pieces(right, "x <a>\n\xc2\xa0y"), ElementsAre("x ", "1[<a>\n\xc2\xa0]", "y"));
  const std::vector<AddedToken> both{{.id = 1, .content = "<a>", .left_strip = true, .right_strip = true}};
  EXPECT_THAT(pieces(both, " <a>  <a> "), ElementsAre("1[ <a>  ]", "1[<a> ]"));
}

TEST(AddedTokens, a_single_word_is_not_found_inside_of_a_word) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "ab", .single_word = true}};
  EXPECT_THAT(pieces(tokens,
                     "ab abc ab, \xc3\xa9"
                     "ab _ab"),
              ElementsAre("1[ab]", " abc ", "1[ab]",
                          ", \xc3\xa9"
                          "ab _ab"));
}

TEST(AddedTokens, without_tokens_or_with_empty_ones_a_text_is_one_piece) {
  EXPECT_THAT(pieces({}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(pieces({AddedToken{}}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(pieces({{.id = 1, .content = "a"}}, ""), ElementsAre());
}

TEST(AddedTokens, a_megabyte_of_white_space_that_is_a_token_ends_soon) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "\n", .left_strip = true}};
  EXPECT_EQ(pieces(tokens, std::string(1 << 20, '\n')).size(), std::size_t{1} << 20U);
}

}  // namespace
}  // namespace maestro
