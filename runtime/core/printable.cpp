// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/printable.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace maestro {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
}

/// Returns the bytes of the character that `text` starts with; 0 for a control character (C0, DEL, C1) and for invalid
/// UTF-8.
std::size_t character_bytes(std::string_view text) {
  const unsigned lead = byte_at(text, 0), second = byte_at(text, 1);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const std::size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte_at(text, at) & 0xc0u) != 0x80u) return 0;
  }
  const bool control = lead == 0xc2 && second < 0xa0;
  // Overlong forms, surrogates and code points beyond U+10FFFF (RFC 3629, section 4).
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool outside = (lead == 0xed && second > 0x9f) || (lead == 0xf4 && second > 0x8f);
  return control || overlong || outside ? 0 : bytes;
}

std::string escaped(char c) {
  constexpr std::string_view digits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return c == '\n' ? "\\n" : std::string{'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

}  // namespace

std::string printable(std::string_view text, std::size_t longest) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = character_bytes(text.substr(at));
    const std::size_t next = at + std::max<std::size_t>(bytes, 1);
    if (next > longest) return out + "...";
    out += bytes > 0 ? std::string(text.substr(at, bytes)) : escaped(text[at]);
    at = next;
  }
  return out;
}

std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace maestro
