#include "runtime/job/printable.hpp"

#include <array>
#include <charconv>

namespace maestro {
namespace {

constexpr std::size_t longest_shown = 120;

}  // namespace

std::string printable(std::string_view text) {
  const bool shortened = text.size() > longest_shown;
  if (shortened) {
    text = text.substr(0, longest_shown);
    // Not in the middle of a UTF-8 sequence.
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0u) == 0x80u) text.remove_suffix(1);
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xc0u) text.remove_suffix(1);
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      out += c;
    }
  }
  return shortened ? out + "..." : out;
}

std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace maestro
