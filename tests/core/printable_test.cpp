// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/printable.hpp"

#include <gtest/gtest.h>

#include "runtime/core/printable_text.hpp"

namespace maestro {
namespace {

TEST(Printable, leaves_text_and_other_scripts_alone) {
  EXPECT_EQ(printable("runs/a b.toml"), "runs/a b.toml");
  EXPECT_EQ(printable("caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x99\x82"), "caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x99\x82");
}

TEST(Printable, escapes_what_would_end_or_redraw_the_line) {
  EXPECT_EQ(printable("a\nb\rc\td\x1b[Ke\x7f"), "a\\nb\\x0dc\\x09d\\x1b[Ke\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J")
      << "C1 control characters act on terminals too";
}

TEST(Printable, escapes_bytes_that_are_no_utf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "an overlong form";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
}

TEST(Printable, cuts_long_text_between_characters) {
  EXPECT_EQ(printable(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(printable(std::string(5000, 'x')), std::string(120, 'x') + "...");
  EXPECT_EQ(printable("ab\xc3\xa9", 3), "ab...");
  EXPECT_EQ(printable("ab\xc3\xa9", 4), "ab\xc3\xa9");
}

TEST(PrintableText, keeps_line_breaks_and_tabs_alone_and_leaves_nothing_out) {
  EXPECT_EQ(printable_text("a\n\tb\x1b[2J\r\n"), "a\n\tb\\x1b[2J\\x0d\n");
  EXPECT_EQ(printable_text(std::string(5000, 'x') + "\n"), std::string(5000, 'x') + "\n");
  EXPECT_EQ(printable_text(""), "");
  EXPECT_EQ(printable_line("a\n\tb" + std::string(5000, 'x')), "a\\n\\x09b" + std::string(5000, 'x'));
}

}  // namespace
}  // namespace maestro
