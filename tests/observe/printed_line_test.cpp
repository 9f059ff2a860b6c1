// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/printed_line.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(PrintedLine, is_one_printable_line_whatever_its_values_hold) {  // PZ-1
  std::ostringstream out;
  PrintedLine(out) << "bound     " << 2 << " of job a\nerror: forged\x1b[31m";
  PrintedLine(out) << "";
  EXPECT_EQ(out.str(), "bound     2 of job a\\nerror: forged\\x1b[31m\n\n");
}

}  // namespace
}  // namespace maestro
