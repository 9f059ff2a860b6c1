// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/normalizer.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using Form = UnicodeForm::Form;

std::string normalized(std::vector<Normalizer::Step> steps, std::string_view text) {
  return Normalizer(std::move(steps)).normalize(text);
}

TEST(Normalizer, form_c_composes_with_ascii_before_and_between) {
  const std::vector<Normalizer::Step> nfc{UnicodeForm{Form::nfc}};
  EXPECT_EQ(normalized(nfc, ""), "");
  EXPECT_EQ(normalized(nfc, "plain"), "plain");
  EXPECT_EQ(normalized(nfc, "e\xcc\x81"), "\xc3\xa9");
  EXPECT_EQ(normalized(nfc, "xe\xcc\x81ye\xcc\x81"), "x\xc3\xa9y\xc3\xa9");
  EXPECT_EQ(normalized(nfc, "e\xcc\x81\xcc\xa7z"), "\xc8\xa9\xcc\x81z") << "marks in order of their classes";
  EXPECT_EQ(normalized(nfc,
                       "\xc3\xa9"
                       "a"),
            "\xc3\xa9"
            "a")
      << "below U+0300";
  EXPECT_EQ(normalized(nfc, "\xe1\x84\x80\xe1\x85\xa1"), "\xea\xb0\x80") << "Hangul";
  EXPECT_EQ(normalized(nfc, "\xea\xb0\x80\xe1\x86\xa8"), "\xea\xb0\x81") << "Hangul with a final consonant";
  EXPECT_EQ(normalized(nfc, "\xea\xb0\x80\xe1\x86\xa7"), "\xea\xb0\x80\xe1\x86\xa7") << "U+11A7 is none";
  EXPECT_EQ(normalized(nfc, "\xcc\x81"), "\xcc\x81") << "a mark alone";
  EXPECT_EQ(normalized(nfc, "<\xcc\xb8"), "\xe2\x89\xae") << "punctuation composes as well";
  EXPECT_EQ(normalized(nfc, "\xef\xac\x81"), "\xef\xac\x81") << "a ligature";
}

TEST(Normalizer, the_other_forms_decompose_or_fold) {
  EXPECT_EQ(normalized({UnicodeForm{Form::nfd}}, "x\xc3\xa9"), "xe\xcc\x81");
  EXPECT_EQ(normalized({UnicodeForm{Form::nfkc}}, "\xef\xac\x81\xe2\x91\xa0"), "fi1");
  EXPECT_EQ(normalized({UnicodeForm{Form::nfkc}}, "\xef\xac\x81\xcc\x81"), "f\xc3\xad");
  EXPECT_EQ(normalized({UnicodeForm{Form::nfkd}}, "\xef\xbc\xa1\xc3\xa9"), "Ae\xcc\x81");
}

TEST(Normalizer, steps_run_in_order) {
  const std::vector<Normalizer::Step> llama{Prepend{"_"}, Replace{make_literal_pattern(" "), "_"}};
  EXPECT_EQ(normalized(llama, "a b"), "_a_b");
  EXPECT_EQ(normalized(llama, ""), "") << "nothing is put before no text";
  EXPECT_EQ(normalized({Replace{make_pattern("x*").value_or_throw(), "-"}}, "axxb"), "-a--b-");
}

TEST(Normalizer, strip_removes_white_space_of_either_end) {
  const std::string text =
      " \t\xe3\x80\x80"
      "a b\xc2\xa0\n";
  EXPECT_EQ(normalized({StripSpace{true, true}}, text), "a b");
  EXPECT_EQ(normalized({StripSpace{true, false}}, text), "a b\xc2\xa0\n");
  EXPECT_EQ(normalized({StripSpace{false, true}}, text),
            " \t\xe3\x80\x80"
            "a b");
  EXPECT_EQ(normalized({StripSpace{true, true}}, " \n"), "");
}

}  // namespace
}  // namespace maestro
