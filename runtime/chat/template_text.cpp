// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/tokenizer/character.hpp"

namespace maestro {

namespace {

struct CaseRange {
  char32_t first, last;
  int step;
  CaseKind kind;
  int distance;
};
struct CaseText {
  char32_t point;
  CaseKind kind;
  const char* text;
};
#include "runtime/chat/case_ranges.inc"

char32_t mapped(char32_t point, CaseKind kind) {
  if (class_of(point).is(CharacterClass::caseless)) return point;
  const auto within = [&](const CaseRange& range) {
    return range.kind == kind && point >= range.first && point <= range.last &&
           (point - range.first) % static_cast<char32_t>(range.step) == 0;
  };
  const auto found = std::ranges::find_if(case_ranges, within);
  if (found != std::end(case_ranges)) return point + static_cast<char32_t>(found->distance);
  return kind == CaseKind::title ? mapped(point, CaseKind::upper) : point;
}

char ascii_with_case(char c, CaseKind kind) {
  const bool lower = kind == CaseKind::lower;
  if (lower ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z') return static_cast<char>(c ^ 0x20);
  return c;
}

void append_with_case(std::string& out, char32_t point, CaseKind kind) {
  if (point < 128) {
    out += ascii_with_case(static_cast<char>(point), kind);
    return;
  }
  const auto special =
      std::ranges::find_if(case_texts, [&](const CaseText& each) { return each.point == point && each.kind == kind; });
  out += special != std::end(case_texts) ? std::string(special->text) : utf8_of(mapped(point, kind));
}

/// Returns whether a sigma is at the end of a word, with a special lower form.
bool is_final_sigma(const std::u32string& points, std::size_t at) {
  const auto skipped = [](char32_t point) {
    return point == U'\'' || point == U'.' || point == U':' || point == 0xAD ||
           class_of(point).is(CharacterClass::mark);
  };
  std::size_t before = at;
  while (before > 0 && skipped(points[before - 1])) --before;
  std::size_t after = at + 1;
  while (after < points.size() && skipped(points[after])) ++after;
  return before > 0 && is_cased(points[before - 1]) && (after == points.size() || !is_cased(points[after]));
}

void append_lower(std::string& out, const std::u32string& points, std::size_t at) {
  if (points[at] == 0x3A3) {
    out += utf8_of(is_final_sigma(points, at) ? 0x3C2 : 0x3C3);
  } else {
    append_with_case(out, points[at], CaseKind::lower);
  }
}

bool is_printable(char32_t point) {
  constexpr std::array<std::pair<char32_t, char32_t>, 14> hidden{{{0x00, 0x1F},
                                                                  {0x7F, 0xA0},
                                                                  {0xAD, 0xAD},
                                                                  {0x600, 0x605},
                                                                  {0x61C, 0x61C},
                                                                  {0x1680, 0x1680},
                                                                  {0x2000, 0x200F},
                                                                  {0x2028, 0x202F},
                                                                  {0x205F, 0x206F},
                                                                  {0x3000, 0x3000},
                                                                  {0xD800, 0xF8FF},
                                                                  {0xFEFF, 0xFEFF},
                                                                  {0xFFF0, 0xFFFB},
                                                                  {0xE0000, 0x10FFFF}}};
  return std::ranges::none_of(hidden, [&](const auto& range) { return point >= range.first && point <= range.second; });
}

std::string hexadecimal(char32_t point, std::size_t width) {
  std::array<char, 8> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::uint32_t{point}, 16).ptr;
  const std::string made(digits.data(), end);
  return std::string(width - std::min(width, made.size()), '0') + made;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (static_cast<unsigned char>(c) & 0x80U) == 0; });
}

std::u32string points_of(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if ((static_cast<unsigned char>(text[at]) & 0x80U) == 0) {
      points += static_cast<char32_t>(text[at++]);
      continue;
    }
    const Character character = character_at(text, at);
    points += character.point;
    at += character.bytes;
  }
  return points;
}

std::string text_of(std::u32string_view points) {
  std::string text;
  for (const char32_t point : points) text += utf8_of(point);
  return text;
}

std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

TemplateValues characters_of(std::string_view text) {
  TemplateValues made;
  for (const char32_t point : points_of(text)) made.emplace_back(utf8_of(point));
  return made;
}

bool is_space(char32_t point) {
  return class_of(point).is(CharacterClass::space) || (point >= 0x1C && point <= 0x1F);
}

bool is_cased(char32_t point) {
  if (point < 128) return (point | 0x20U) >= U'a' && (point | 0x20U) <= U'z';
  const CharacterClass kind = class_of(point);
  return kind.is(CharacterClass::upper) || kind.is(CharacterClass::lower);
}

std::string with_case(std::string_view text, CaseKind kind) {
  std::string made;
  made.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) made += ascii_with_case(c, kind);
    return made;
  }
  const std::u32string points = points_of(text);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (kind == CaseKind::lower) {
      append_lower(made, points, i);
    } else {
      append_with_case(made, points[i], kind);
    }
  }
  return made;
}

std::string capitalized(std::string_view text) {
  const std::u32string points = points_of(text);
  std::string made;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      append_with_case(made, points[i], CaseKind::title);
    } else {
      append_lower(made, points, i);
    }
  }
  return made;
}

std::string titled(std::string_view text) {
  const std::u32string points = points_of(text);
  std::string made;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i == 0 || !is_cased(points[i - 1])) {
      append_with_case(made, points[i], CaseKind::title);
    } else {
      append_lower(made, points, i);
    }
  }
  return made;
}

std::string with_swapped_case(std::string_view text) {
  const std::u32string points = points_of(text);
  std::string made;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool upper = points[i] < 128 ? points[i] <= U'Z' : class_of(points[i]).is(CharacterClass::upper);
    if (is_cased(points[i]) && upper) {
      append_lower(made, points, i);
    } else {
      append_with_case(made, points[i], CaseKind::upper);
    }
  }
  return made;
}

std::string_view stripped(std::string_view text, const std::string* characters, bool left, bool right) {
  const std::u32string removed = characters != nullptr ? points_of(*characters) : U"";
  const auto goes = [&](char32_t point) {
    return characters != nullptr ? removed.find(point) != std::u32string::npos : is_space(point);
  };
  while (left && !text.empty()) {
    const Character first = character_at(text, 0);
    if (!goes(first.point)) break;
    text.remove_prefix(first.bytes);
  }
  while (right && !text.empty()) {
    const std::size_t last = character_before(text, text.size());
    if (!goes(character_at(text, last).point)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string text_repr(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string made(1, quote);
  for (const char32_t point : points_of(text)) {
    constexpr std::u32string_view named = U"\n\r\t\\";
    const std::size_t known = named.find(point);
    if (known != std::u32string_view::npos) {
      made += std::string("\\") + "nrt\\"[known];
    } else if (point == static_cast<char32_t>(quote)) {
      made += std::string("\\") + quote;
    } else if (is_printable(point)) {
      made += utf8_of(point);
    } else {
      made += point < 0x100     ? "\\x" + hexadecimal(point, 2)
              : point < 0x10000 ? "\\u" + hexadecimal(point, 4)
                                : "\\U" + hexadecimal(point, 8);
    }
  }
  return made + quote;
}

std::string escaped_html(std::string_view text) {
  std::string made;
  for (const char c : text) {
    constexpr std::string_view characters = "&<>'\"";
    constexpr std::array<const char*, 5> names{"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const std::size_t known = characters.find(c);
    made += known == std::string_view::npos ? std::string(1, c) : names[known];
  }
  return made;
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    constexpr std::string_view characters = "\"\\\n\r\t\f\b";
    if (const std::size_t known = characters.find(c); known != std::string_view::npos) {
      out += std::string("\\") + "\"\\nrtfb"[known];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u" + hexadecimal(static_cast<unsigned char>(c), 4);
    } else if (ascii && (static_cast<unsigned char>(c) & 0x80U) != 0) {
      const Character character = character_at(text, at);
      if (character.point < 0x10000) {
        out += "\\u" + hexadecimal(character.point, 4);
      } else {
        const char32_t above = character.point - 0x10000;
        out += "\\u" + hexadecimal(0xD800 + (above >> 10U), 4) + "\\u" + hexadecimal(0xDC00 + (above & 0x3FFU), 4);
      }
      at += character.bytes;
      continue;
    } else {
      out += c;
    }
    ++at;
  }
  out += '"';
}

TemplateValue number_in(std::string_view text, bool real) {
  std::string digits(stripped(text, nullptr, true, true));
  for (std::size_t i = 1; i + 1 < digits.size(); ++i) {  // 1_000
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (digits[i] == '_' && digit(digits[i - 1]) && digit(digits[i + 1])) digits.erase(i, 1);
  }
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const char* end = digits.data() + digits.size();
  if (real) {
    const std::string lower = with_case(digits, CaseKind::lower);
    if (lower == "inf" || lower == "infinity" || lower == "nan") {
      const double made = lower == "nan" ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
      return negative ? -made : made;
    }
    double number = 0;
    const bool begins = digits.starts_with('.') || (!digits.empty() && digits[0] >= '0' && digits[0] <= '9');
    const auto [at, problem] = std::from_chars(digits.data(), end, number);
    if (!begins || problem != std::errc() || (at != end && std::string_view(at, end) != ".")) {
      return TemplateValue::undefined();
    }
    return negative ? -number : number;
  }
  std::uint64_t number = 0;
  const auto [at, problem] = std::from_chars(digits.data(), end, number);
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (digits.empty() || problem != std::errc() || at != end || number > most) return TemplateValue::undefined();
  const auto whole = static_cast<std::int64_t>(number);
  return negative ? -whole : whole;
}

}  // namespace maestro
