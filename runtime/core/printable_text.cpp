// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/printable_text.hpp"

#include <algorithm>

#include "runtime/core/printable.hpp"

namespace maestro {

std::string printable_line(std::string_view line) {
  return printable(line, line.size());
}

std::string printable_text(std::string_view text) {
  constexpr std::string_view kept = "\n\t";
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kept), text.size());
    out += printable_line(text.substr(0, end));
    text.remove_prefix(end);
    if (text.empty()) break;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace maestro
