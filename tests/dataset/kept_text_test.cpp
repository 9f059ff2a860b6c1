// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/kept_text.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace maestro {
namespace {

constexpr std::size_t many = 1000;  // more lines than the search covers for a text that is not contained completely

/// Returns lines of five characters, with `between` after each but the last.
std::string lines(const std::string& between) {
  std::string text;
  for (std::size_t at = 0; at < many; ++at) {
    const std::string number = std::to_string(at);
    text += (at > 0 ? between : "") + "l" + std::string(4 - number.size(), '0') + number;
  }
  return text;
}

TEST(KeptText, characters_are_those_of_utf8_without_white_space) {
  EXPECT_EQ(trimmed("\n a b\t"), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(count_characters("\xc3\xa9 x\n\xe6\x97\xa5"), 3U);
}

TEST(KeptText, a_text_that_is_contained_is_kept_whole) {  // KT-1
  EXPECT_EQ(kept_characters("ab cd", "x ab cd y"), 4U);
  EXPECT_EQ(kept_characters("a\nb \"c\"", R"({"text": "a\nb \"c\""})"), 5U) << "as JSON spells it";
  EXPECT_EQ(kept_characters(lines("\n"), "<" + lines("\n") + ">"), 5 * many);
  EXPECT_EQ(kept_characters(lines("\n"), nlohmann::json(lines("\n")).dump()), 5 * many);
}

TEST(KeptText, of_a_text_that_is_cut_the_lines_and_the_longest_beginning_or_end_are_kept) {
  EXPECT_EQ(kept_characters("<think>abcd</think>1234", "A1234E"), 4U);
  EXPECT_EQ(kept_characters("first\nsecond\nthird", "third first"), 10U);
  EXPECT_EQ(kept_characters("abcdefghij", "x abcdef."), 6U);
  EXPECT_EQ(kept_characters("abcdefghij", "x fghij."), 5U);
  EXPECT_EQ(kept_characters("abcdefghij", "x abc ij."), 0U) << "so little is there by chance";
  EXPECT_EQ(kept_characters("abcd", ""), 0U);
}

TEST(KeptText, a_text_that_is_not_whole_takes_a_constant_number_of_searches) {  // KT-2
  EXPECT_EQ(kept_characters(lines("\n"), lines("\n\n")), 5 * many) << "whole lines take none";
  EXPECT_EQ(kept_characters(lines("\n"), lines(" ")), 5 * std::size_t{128}) << "a search for each of the first lines";
  EXPECT_EQ(kept_characters(lines("\n"), std::string(1 << 20, 'x')), 0U);
}

}  // namespace
}  // namespace maestro
