// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/text_stream.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "runtime/core/random.hpp"
#include "runtime/core/utf8.hpp"

namespace maestro {
namespace {

class TextStreamOf : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer =
      open_tokenizer(std::string(MAESTRO_SOURCE_DIR) + "/tests/tokenizer/references/" + GetParam() + ".json")
          .value_or_throw();
};

/// TX-1, TX-2.
TEST_P(TextStreamOf, pieces_are_whole_characters_and_together_the_decoded_text) {
  for (const char* text : {"Hello, 12345 worlds\n", "d\u00e9j\u00e0 vu \u65e5\u672c \U0001f600\U0001f9d1 'LL",
                           "  two  spaces ", "\u0e44\u0e17\u0e22", "a\uFFFD", ""}) {
    SCOPED_TRACE(text);
    const std::vector<std::int32_t> tokens = tokenizer->encode(text);
    TextStream stream(*tokenizer);
    std::string all;
    for (const std::int32_t token : tokens) {
      const std::string piece = stream.add(token);
      EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
      EXPECT_EQ(piece.find("\uFFFD"), std::string::npos);
      all += piece;
    }
    EXPECT_EQ(all + stream.finish(), tokenizer->decode(tokens, true));
    EXPECT_EQ(stream.finish(), "");
  }
}

TEST_P(TextStreamOf, any_tokens_give_utf_8) {
  Random random(17);
  for (int round = 0; round < 50; ++round) {
    TextStream stream(*tokenizer);
    std::string all;
    for (int i = 0; i < 40; ++i) {
      all += stream.add(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(tokenizer->vocabulary()))));
      ASSERT_EQ(valid_utf8_prefix(all), all.size());
    }
    all += stream.finish();
    ASSERT_EQ(valid_utf8_prefix(all), all.size());
  }
}

INSTANTIATE_TEST_SUITE_P(tokenizers, TextStreamOf, testing::Values("gpt2", "llama3", "llama2", "mistral", "gemma"),
                         [](const auto& test) { return std::string(test.param); });

TEST(TextStream, a_character_waits_for_its_last_byte) {
  const ByteTokenizer bytes;
  TextStream stream(bytes);
  EXPECT_EQ(stream.add('a'), "a");
  EXPECT_EQ(stream.add(0xe2), "");
  EXPECT_EQ(stream.add(0x82), "");
  EXPECT_EQ(stream.add(0xac), "\u20ac");
  EXPECT_EQ(stream.add(0xe2), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

}  // namespace
}  // namespace maestro
