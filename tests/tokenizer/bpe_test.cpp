// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/bpe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <random>

namespace maestro {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::ElementsAre;
using testing::HasSubstr;

Ids ids_of(const BpeModel& model, std::string_view word) {
  WordCache cache(64);
  Ids ids;
  model.encode(word, cache, ids);
  return ids;
}

/// Returns options with letters, then merges of random tokens.
BpeOptions random_options(std::mt19937& random, std::string_view letters, std::size_t merges) {
  BpeOptions options;
  std::vector<std::string> tokens;
  const auto add = [&](const std::string& token) {
    if (options.vocabulary.emplace(token, static_cast<std::int32_t>(tokens.size())).second) tokens.push_back(token);
  };
  for (const char letter : letters) add({letter});
  for (std::size_t i = 0; i < merges; ++i) {
    const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > 8) continue;
    options.merges.emplace_back(left, right);
    add(left + right);
  }
  std::shuffle(options.merges.begin(), options.merges.end(), random);
  return options;
}

/// Merges by definition: the lowest rank first, the leftmost if ranks are equal.
std::vector<std::string> merged(const BpeOptions& options, std::vector<std::string> symbols) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < options.merges.size(); ++rank) ranks[options.merges[rank]] = rank;
  for (;;) {
    std::size_t best = options.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == options.merges.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::string random_word(std::mt19937& random, std::string_view letters, std::size_t length) {
  std::string word;
  while (word.size() < length) word += letters[random() % letters.size()];
  return word;
}

/// Compares with the definition for words on both sides of the length at which a queue is used.
void expect_definition(BpeOptions options, std::mt19937& random, std::string_view letters) {
  const auto model = BpeModel::make(options).value_or_throw();
  for (const std::size_t length : {1, 2, 5, 23, 24, 25, 26, 60, 200}) {
    const std::string word = random_word(random, letters, length);
    std::vector<std::string> symbols;
    for (const char letter : word) symbols.emplace_back(1, letter);
    Ids wanted;
    for (const std::string& token : merged(options, symbols)) wanted.push_back(options.vocabulary.at(token));
    EXPECT_EQ(ids_of(*model, word), wanted) << word;
  }
}

TEST(Bpe, tokens_are_those_of_the_lowest_rank_first) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) expect_definition(random_options(random, "abc", 60), random, "abc");
}

// BE-2
TEST(Bpe, a_cut_word_has_the_tokens_of_the_whole) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    BpeOptions options = random_options(random, "abcdefgh", 20);  // most pairs belong to no token
    options.vocabulary.emplace("?", 1000);
    options.unknown = "?";  // with an unknown token words are cut
    expect_definition(options, random, "abcdefgh");
  }
}

BpeOptions letters_and_bytes() {
  BpeOptions options;
  options.vocabulary = {{"?", 0},        {"a", 1},      {"b", 2},      {"ab", 3},
                        {"\xc3\xa9", 4}, {"<0xE2>", 5}, {"<0x82>", 6}, {"<0xAC>", 7}};
  options.merges = {{"a", "b"}};
  options.unknown = "?";
  return options;
}

TEST(Bpe, characters_without_a_token_become_bytes_or_the_unknown_token) {
  BpeOptions options = letters_and_bytes();
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "abxy\xc3\xa9z"), ElementsAre(3, 0, 0, 4, 0));
  options.fuse_unknown = true;
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "abxy\xc3\xa9z"), ElementsAre(3, 0, 4, 0));
  options.byte_fallback = true;
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(),
                     "a\xe2\x82\xac"
                     "b"),
              ElementsAre(1, 5, 6, 7, 2));
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "xy\xe2\x82\xacx"), ElementsAre(0, 5, 6, 7, 0))
      << "bytes without a token";
  options.unknown.reset();
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "axb"), ElementsAre(3)) << "no token: left out";
}

TEST(Bpe, a_word_that_is_a_token_needs_no_merges_where_they_are_ignored) {
  BpeOptions options = letters_and_bytes();
  options.vocabulary["abab"] = 8;
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "abab"), ElementsAre(3, 3));
  options.ignore_merges = true;
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "abab"), ElementsAre(8));
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), "ababab"), ElementsAre(3, 3, 3));
}

TEST(Bpe, byte_level_words_are_bytes_in_the_alphabet_of_gpt_2) {
  EXPECT_EQ(byte_alphabet()[' '], "\xc4\xa0");
  EXPECT_EQ(byte_alphabet()['A'], "A");
  std::string all;
  for (const std::string& character : byte_alphabet()) all += character;
  const auto bytes = bytes_of_token(all);
  ASSERT_TRUE(bytes && bytes->size() == 256);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(static_cast<unsigned char>((*bytes)[i]), i);
  EXPECT_FALSE(bytes_of_token("a b")) << "a space is no character of the alphabet";

  BpeOptions options;
  options.byte_level = true;
  options.vocabulary = {{"\xc4\xa0", 0},
                        {"a", 1},
                        {"\xc4\xa0"
                         "a",
                         2},
                        {"\xc3\x83", 3}};
  options.merges = {{"\xc4\xa0", "a"}};
  EXPECT_THAT(ids_of(*BpeModel::make(options).value_or_throw(), " a\xc3"), ElementsAre(2, 3));
}

// BE-1
TEST(Bpe, a_megabyte_of_one_word_ends_within_seconds) {
  std::mt19937 random(3);
  constexpr std::size_t megabyte = 1 << 20;
  [[maybe_unused]] const std::clock_t begin = std::clock();
  for (const std::string_view letters : {"a", "abcdefghijklmnopqrstuvwxyz"}) {
    const auto model = BpeModel::make(random_options(random, letters, 500)).value_or_throw();
    EXPECT_GT(ids_of(*model, random_word(random, letters, megabyte)).size(), megabyte / 8 - 1);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(std::clock() - begin, 2 * CLOCKS_PER_SEC);  // CPU time of this process, so independent of other work
#endif
}

TEST(Bpe, cached_words_have_the_tokens_of_the_first_time) {
  std::mt19937 random(4);
  const auto model = BpeModel::make(random_options(random, "abc", 60)).value_or_throw();
  WordCache cache(64);  // few entries: words replace each other
  for (int round = 0; round < 2000; ++round) {
    const std::string word = random_word(random, "abc", 1 + random() % 4);
    Ids ids;
    model->encode(word, cache, ids);
    EXPECT_EQ(ids, ids_of(*model, word));
  }
}

TEST(Bpe, wrong_options_are_refused_by_their_key) {
  BpeOptions options = letters_and_bytes();
  options.merges.emplace_back("a", "c");
  EXPECT_THAT(BpeModel::make(options).error().message, HasSubstr("model.merges[1] needs the token \"c\""));
  options.merges.back() = {"b", "a"};
  EXPECT_THAT(BpeModel::make(options).error().message, HasSubstr("model.merges[1] needs the token \"ba\""));
  options = letters_and_bytes();
  options.unknown = "!";
  EXPECT_THAT(BpeModel::make(options).error().message, HasSubstr("model.unk_token = \"!\""));
}

}  // namespace
}  // namespace maestro
