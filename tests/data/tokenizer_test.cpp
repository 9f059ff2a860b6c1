// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/result.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/data/text/token_store.hpp"

namespace maestro {
namespace {

TEST(ByteTokenizer, encodes_each_byte_as_its_value) {
  EXPECT_EQ(ByteTokenizer().encode("A\n\xc3\xa9"), (std::vector<std::int32_t>{65, 10, 0xc3, 0xa9}));
}

TEST(ByteTokenizer, decoding_returns_the_text_that_was_encoded) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int repeat = 0; repeat < 3000; ++repeat)
    text += "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xbc ";  // longer than a piece
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(ByteTokenizer, decoding_any_tokens_gives_valid_text) {
  const std::vector<std::int32_t> tokens{'a', 0xc3, 'b', -1, 256, 0xe2, 0x82};
  const std::string text = ByteTokenizer().decode(tokens);
  EXPECT_EQ(valid_utf8_prefix(text), text.size());
  const std::string hole = "\xef\xbf\xbd";
  EXPECT_EQ(text, "a" + hole + "b" + hole + hole + hole) << "the last two are a single beginning";
}

TEST(Tokenizer, an_unknown_name_is_answered_with_the_valid_one) {
  try {
    (void)make_tokenizer("byte");
    FAIL() << "accepted";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("byte does not exist"), testing::HasSubstr("\"bytes\"")));
  }
}

TEST(Utf8, knows_the_longest_valid_prefix) {
  const auto prefix = [](std::string_view text) { return valid_utf8_prefix(text); };
  EXPECT_EQ(prefix(""), 0u);
  EXPECT_EQ(prefix("plain ascii, long enough"), 24u);
  EXPECT_EQ(prefix("12345678\xff"), 8u);
  EXPECT_EQ(prefix("\xc0\x80"), 0u) << "overlong";
  EXPECT_EQ(prefix("\xe0\x9f\xbf"), 0u) << "overlong";
  EXPECT_EQ(prefix("\xed\xa0\x80"), 0u) << "surrogate";
  EXPECT_EQ(prefix("\xed\x9f\xbf"), 3u) << "just below the surrogates";
  EXPECT_EQ(prefix("\xf4\x90\x80\x80"), 0u) << "above U+10FFFF";
  EXPECT_EQ(prefix("\xf4\x8f\xbf\xbf"), 4u) << "U+10FFFF";
  EXPECT_EQ(prefix("a\xe2\x82"), 1u) << "cut off";
  EXPECT_EQ(prefix("a\x80"), 1u) << "continuation without a lead";
}

TEST(TokenStore, returns_what_was_appended_at_every_width) {
  for (const std::int64_t vocabulary : {256, 257, 65536, 65537, 1 << 24}) {
    TokenStore store(vocabulary);
    const std::vector<std::int32_t> tokens{0, 7, static_cast<std::int32_t>(vocabulary - 1)};
    store.append(tokens);
    store.append(tokens);
    std::vector<std::int32_t> back(3);
    store.read(2, back);
    EXPECT_EQ(store.size(), 6u);
    EXPECT_EQ(back, (std::vector<std::int32_t>{tokens[2], 0, 7})) << vocabulary;
  }
}

}  // namespace
}  // namespace maestro
