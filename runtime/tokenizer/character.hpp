// SPDX-License-Identifier: Apache-2.0
// Classes of characters in Unicode 16, and the characters of UTF-8 text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace maestro {

struct CharacterClass {
  enum Subject : std::uint8_t {
    other = 0,
    upper = 1,     ///< Lu, Lt
    lower = 2,     ///< Ll
    caseless = 3,  ///< Lm, Lo
    mark = 4,      ///< M
    number = 5,    ///< N
    space = 6      ///< \s: the 25 characters of White_Space
  };
  std::uint8_t bits = 0;

  [[nodiscard]] constexpr std::uint8_t subject() const { return bits & 7U; }
  [[nodiscard]] constexpr bool is(Subject wanted) const { return subject() == wanted; }
  /// Returns \p{L}.
  [[nodiscard]] constexpr bool letter() const { return subject() >= upper && subject() <= caseless; }
  /// Returns \p{P}.
  [[nodiscard]] constexpr bool punctuation() const { return (bits & 16U) != 0; }
  /// Returns \w: letters, marks, numbers and connecting punctuation.
  [[nodiscard]] constexpr bool word() const { return (subject() != other && subject() != space) || (bits & 32U) != 0; }
};

/// A character of UTF-8 text: its code point, class, and length in bytes.
struct Character {
  char32_t point = 0;
  CharacterClass kind;
  std::uint8_t bytes = 0;
};

/// Returns the class of a code point below 0x110000.
[[nodiscard]] CharacterClass class_of(char32_t point);
/// Returns the character that begins at `at`. `text` is valid UTF-8, `at` begins a character in it.
[[nodiscard]] Character character_at(std::string_view text, std::size_t at);
/// Returns the begin of the character before `at`; `at` > 0.
[[nodiscard]] std::size_t character_before(std::string_view text, std::size_t at);
/// Returns the UTF-8 bytes of a code point.
[[nodiscard]] std::string utf8_of(char32_t point);

}  // namespace maestro
