// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/markup.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(Markup, escapes_what_html_would_understand) {
  EXPECT_EQ(escaped("<b title=\"x\">a & 'b'</b>"), "&lt;b title=&quot;x&quot;&gt;a &amp; &#39;b&#39;&lt;/b&gt;");
}

TEST(Markup, writes_base64_as_the_rfc_does) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST(Markup, prints_numbers_for_people) {
  EXPECT_EQ(fixed(2.0 / 3, 2), "0.67");
  EXPECT_EQ(fixed(-3, 0), "-3");
  EXPECT_EQ(shortened(0.05), "0.05");
  EXPECT_EQ(shortened(2000), "2000");
}

}  // namespace
}  // namespace maestro
