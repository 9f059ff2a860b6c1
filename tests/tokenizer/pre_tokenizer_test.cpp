// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pre_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using testing::ElementsAre;
using Words = std::vector<std::string>;

Words words(std::vector<PreTokenizer::Step> steps, std::string_view text, bool first = true) {
  Words found;
  PreTokenizer(std::move(steps)).split(text, first, [&](std::string_view word) { found.emplace_back(word); });
  return found;
}

Words split(SplitBehavior behavior, bool invert = false) {
  return words({Split{make_literal_pattern("-"), behavior, invert}}, "a-bc--d-");
}

TEST(PreTokenizer, each_behaviour_of_a_split_joins_matches_its_way) {
  EXPECT_THAT(split(SplitBehavior::removed), ElementsAre("a", "bc", "d"));
  EXPECT_THAT(split(SplitBehavior::isolated), ElementsAre("a", "-", "bc", "-", "-", "d", "-"));
  EXPECT_THAT(split(SplitBehavior::merged_with_previous), ElementsAre("a-", "bc-", "-", "d-"));
  EXPECT_THAT(split(SplitBehavior::merged_with_next), ElementsAre("a", "-bc", "-", "-d", "-"));
  EXPECT_THAT(split(SplitBehavior::contiguous), ElementsAre("a", "-", "bc", "--", "d", "-"));
}

TEST(PreTokenizer, an_inverted_split_takes_the_text_between_for_the_matches) {
  EXPECT_THAT(split(SplitBehavior::removed, true), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(split(SplitBehavior::isolated, true), ElementsAre("a", "-", "bc", "-", "-", "d", "-"));
  EXPECT_THAT(split(SplitBehavior::merged_with_previous, true), ElementsAre("a", "-bc", "-", "-d", "-"));
}

TEST(PreTokenizer, digits_punctuation_and_white_space_cut) {
  EXPECT_THAT(words({Digits{true}}, "ab12c\xc2\xbd"), ElementsAre("ab", "1", "2", "c", "\xc2\xbd"));
  EXPECT_THAT(words({Digits{false}}, "ab12c"), ElementsAre("ab", "12", "c"));
  EXPECT_THAT(words({Punctuation{}}, "a+b\xe3\x80\x82!"), ElementsAre("a", "+", "b", "\xe3\x80\x82", "!"));
  EXPECT_THAT(words({WhitespaceSplit{}}, " a\xc2\xa0 b\n"), ElementsAre("a", "b"));
  EXPECT_THAT(words({}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(words({Digits{true}}, ""), ElementsAre());
}

TEST(PreTokenizer, a_space_is_put_before_every_word_without_one) {
  EXPECT_THAT(words({PrefixSpace{}}, "a"), ElementsAre(" a"));
  EXPECT_THAT(words({Punctuation{}, PrefixSpace{}}, "a!b"), ElementsAre(" a", " !", " b"));
  EXPECT_THAT(words({PrefixSpace{}}, " a"), ElementsAre(" a"));
}

TEST(PreTokenizer, metaspace_marks_spaces_and_the_beginning_by_its_scheme) {
  const auto marked = [](Metaspace::Prepend prepend, bool split, std::string_view text, bool first = true) {
    return words({Metaspace{"_", prepend, split}}, text, first);
  };
  EXPECT_THAT(marked(Metaspace::Prepend::always, true, "a b  c"), ElementsAre("_a", "_b", "_", "_c"));
  EXPECT_THAT(marked(Metaspace::Prepend::always, true, "a", false), ElementsAre("_a"));
  EXPECT_THAT(marked(Metaspace::Prepend::always, true, " a"), ElementsAre("_a")) << "it begins with the mark";
  EXPECT_THAT(marked(Metaspace::Prepend::first, false, "a b"), ElementsAre("_a_b"));
  EXPECT_THAT(marked(Metaspace::Prepend::first, false, "a b", false), ElementsAre("a_b"));
  EXPECT_THAT(marked(Metaspace::Prepend::never, true, "a b"), ElementsAre("a", "_b"));
}

TEST(PreTokenizer, only_the_first_word_of_a_document_is_its_beginning) {
  EXPECT_THAT(words({WhitespaceSplit{}, Metaspace{"_", Metaspace::Prepend::first, false}}, "a b"),
              ElementsAre("_a", "b"));
}

}  // namespace
}  // namespace maestro
