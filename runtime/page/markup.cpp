// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/markup.hpp"

#include <array>
#include <charconv>
#include <cstdint>

namespace maestro {

namespace {

std::string printed(double value, std::chars_format format, int precision) {
  std::array<char, 512> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, format, precision).ptr;
  return {digits.data(), end};
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t next = 0; next < 3; ++next) {
      group = group << 8 | (at + next < bytes.size() ? static_cast<unsigned char>(bytes[at + next]) : 0U);
    }
    for (std::size_t letter = 0; letter < 4; ++letter) {
      const bool beyond = at + letter > bytes.size();
      out += beyond ? '=' : letters[group >> (18 - 6 * letter) & 63];
    }
  }
  return out;
}

std::string fixed(double value, int digits) {
  return printed(value, std::chars_format::fixed, digits);
}

std::string percent(double share, int digits) {
  return fixed(100 * share, digits) + "%";
}

std::string shortened(double value) {
  return printed(value, std::chars_format::general, 4);
}

}  // namespace maestro
