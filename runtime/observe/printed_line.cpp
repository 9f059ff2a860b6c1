// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/printed_line.hpp"

#include <unistd.h>

#include "runtime/core/printable_text.hpp"

namespace maestro {

PrintedLine::~PrintedLine() {
  out_ << printable_line(text_.str()) << '\n';
}

void print_foreign_text(std::string_view text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  if (terminal) {
    std::cout << printable_text(text);
  } else {
    std::cout << text;
  }
}

}  // namespace maestro
