// SPDX-License-Identifier: Apache-2.0
// Results that a command prints on standard output for people. Console prints the lines of a run.
//
// PZ-1 (printable): a line is one line of printable text, whatever values it has: names of jobs and files may be
//       foreign, and an escape in them would reach the terminal, a line break forge a line.
#pragma once

#include <iostream>
#include <sstream>
#include <string_view>

namespace maestro {

/// A line of standard output, printed when this object ends: `PrintedLine() << "bound     " << value;`
class PrintedLine {
 public:
  explicit PrintedLine(std::ostream& out = std::cout) : out_(out) {}
  ~PrintedLine();
  PrintedLine(const PrintedLine&) = delete;
  PrintedLine& operator=(const PrintedLine&) = delete;

  template <class Value>
  PrintedLine& operator<<(const Value& value) {
    text_ << value;
    return *this;
  }

 private:
  std::ostream& out_;
  std::ostringstream text_;
};

/// Prints text of a sample or a model: unchanged to a file or a program, and on a terminal without control characters
/// except line breaks and tabs.
void print_foreign_text(std::string_view text);

}  // namespace maestro
