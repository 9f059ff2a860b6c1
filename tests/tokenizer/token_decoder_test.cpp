// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/token_decoder.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

const std::string hole = "\xef\xbf\xbd";  // U+FFFD

std::string decoded(std::vector<TokenDecoder::Step> steps, std::vector<std::string> tokens) {
  return TokenDecoder(std::move(steps)).decode(std::move(tokens));
}

TEST(TokenDecoder, without_steps_tokens_stand_with_spaces_between_them) {
  EXPECT_EQ(decoded({}, {"a", "b"}), "a b");
  EXPECT_EQ(decoded({}, {}), "");
}

TEST(TokenDecoder, byte_level_tokens_are_the_bytes_of_their_characters) {
  EXPECT_EQ(decoded({ByteLevelDecoder{}}, {"\xc3\xa2\xc4\xa4",
                                           "\xc2\xac\xc4\xa0"
                                           "a"}),
            "\xe2\x82\xac a");
  EXPECT_EQ(decoded({ByteLevelDecoder{}}, {"\xc3\xa2", "a"}), hole + "a") << "a truncated character";
  EXPECT_EQ(decoded({ByteLevelDecoder{}}, {"<a b>"}), "<a b>") << "a token outside of the alphabet";
}

TEST(TokenDecoder, byte_tokens_in_a_row_are_a_text_or_a_hole_for_each) {
  EXPECT_EQ(decoded({ByteFallbackDecoder{}}, {"a", "<0xE2>", "<0x82>", "<0xAC>", "b"}),
            "a\xe2\x82\xac"
            "b");
  EXPECT_EQ(decoded({ByteFallbackDecoder{}}, {"<0x41>", "<0xE2>", "b"}), hole + hole + "b");
  EXPECT_EQ(decoded({ByteFallbackDecoder{}}, {"<0xE2>"}), hole);
  EXPECT_EQ(decoded({ByteFallbackDecoder{}}, {"<0xZZ>", "<0x4>", "<0x0a>"}), "<0xZZ><0x4>\n");
}

TEST(TokenDecoder, strip_removes_up_to_its_counts) {
  EXPECT_EQ(decoded({StripDecoder{" ", 1, 0}}, {"  a ", " b"}), " a b");
  EXPECT_EQ(decoded({FuseDecoder{}, StripDecoder{" ", 1, 0}}, {" a", " b"}), "a b") << "once, of the whole";
  EXPECT_EQ(decoded({StripDecoder{"x", 0, 2}}, {"axxx"}), "ax");
  EXPECT_EQ(decoded({StripDecoder{"x", 5, 5}}, {"xx"}), "");
}

TEST(TokenDecoder, metaspace_and_replace_make_spaces) {
  EXPECT_EQ(decoded({MetaspaceDecoder{"_", true}}, {"_a", "_b_c"}), "a b c");
  EXPECT_EQ(decoded({MetaspaceDecoder{"_", false}}, {"_a", "_b"}), " a b");
  EXPECT_EQ(decoded({ReplaceDecoder{make_literal_pattern("_"), " "}}, {"_a", "__"}), " a  ");
}

}  // namespace
}  // namespace maestro
