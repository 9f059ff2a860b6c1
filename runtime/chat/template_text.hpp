// SPDX-License-Identifier: Apache-2.0
// Text as in Python: code points of valid UTF-8. Not a public header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/chat/template_values.hpp"

namespace maestro {

enum class CaseKind : std::uint8_t { upper, lower, title };

[[nodiscard]] bool is_ascii(std::string_view text);
[[nodiscard]] std::u32string points_of(std::string_view text);
[[nodiscard]] std::string text_of(std::u32string_view points);
/// Returns the number of code points.
[[nodiscard]] std::size_t length_of(std::string_view text);
/// Returns each character as a text.
[[nodiscard]] TemplateValues characters_of(std::string_view text);
/// Returns Python's str.isspace().
[[nodiscard]] bool is_space(char32_t point);
/// Returns whether the character has a case.
[[nodiscard]] bool is_cased(char32_t point);

/// Returns Python's upper() or lower(); `title` is the title form of every character.
[[nodiscard]] std::string with_case(std::string_view text, CaseKind kind);
[[nodiscard]] std::string capitalized(std::string_view text);
/// Returns Python's str.title().
[[nodiscard]] std::string titled(std::string_view text);
[[nodiscard]] std::string with_swapped_case(std::string_view text);
/// Returns Python's strip(), lstrip() or rstrip(); `characters` absent: white space.
[[nodiscard]] std::string_view stripped(std::string_view text, const std::string* characters, bool left, bool right);
/// Returns Python's repr().
[[nodiscard]] std::string text_repr(std::string_view text);
/// Returns the text with & < > ' " escaped for HTML.
[[nodiscard]] std::string escaped_html(std::string_view text);
/// Appends a JSON string, as json.dumps() writes it.
void append_json_string(std::string& out, std::string_view text, bool ascii);
/// Returns the number that Python's int(text) or, with `real`, float(text) reads; undefined if none.
[[nodiscard]] TemplateValue number_in(std::string_view text, bool real);

}  // namespace maestro
