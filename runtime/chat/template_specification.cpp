// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_specification.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/chat/template_text.hpp"

namespace maestro {

using Value = TemplateValue;

namespace {

std::string grouped(std::string digits, char separator, std::size_t size) {
  const std::size_t whole = std::min(digits.find_first_of(".e%"), digits.size());
  for (std::size_t at = whole; at > size;) {
    at -= size;
    digits.insert(at, 1, separator);
  }
  return digits;
}

std::string sign_of(bool negative, char sign) {
  return negative ? "-" : sign == '-' ? "" : std::string(1, sign);
}

std::string real_digits(double value, const FormatSpecification& how, const FormatReader& in) {
  char type = how.type;
  if (type == '\0' && how.precision < 0) return number_repr(value);
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  if (type == '%') type = 'f', value *= 100;
  const bool plain = type == '\0';
  if (plain) type = 'g';
  if (std::string_view("eEfFgG").find(type) == std::string_view::npos) in.fail("does not fit a number");
  std::array<char, 16> format{'%'};
  std::size_t at = 1;
  if (how.alternate) format[at++] = '#';
  format[at++] = '.', format[at++] = '*', format[at++] = type;
  const int precision = how.precision < 0 ? 6 : how.precision;
  std::string made(most_format_width + 400, '\0');
  made.resize(static_cast<std::size_t>(std::snprintf(made.data(), made.size(), format.data(), precision, value)));
  if (plain && made.find_first_of(".e") == std::string::npos) made += ".0";
  return made + (how.type == '%' ? "%" : "");
}

std::string whole_digits(std::uint64_t value, const FormatSpecification& how) {
  if (how.type == 'c') return text_of(std::u32string(1, static_cast<char32_t>(value)));
  const bool x = how.type == 'x' || how.type == 'X';
  const int base = x ? 16 : how.type == 'o' ? 8 : how.type == 'b' ? 2 : 10;
  std::array<char, 70> digits{};
  std::string made(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr);
  if (how.precision >= 0 && made.size() < static_cast<std::size_t>(how.precision)) {  // only with %
    made.insert(0, static_cast<std::size_t>(how.precision) - made.size(), '0');
  }
  return how.type == 'X' ? with_case(made, CaseKind::upper) : made;
}

}  // namespace

FormatSpecification specification_of(std::string_view text, const TemplatePlace& place) {
  constexpr std::string_view aligns = "<>^=";
  FormatReader in(text, place);
  FormatSpecification made;
  const std::u32string points = points_of(text);
  if (points.size() > 1 && points[1] < 128 && aligns.find(static_cast<char>(points[1])) != std::string_view::npos) {
    made.fill = text_of(points.substr(0, 1));
    for (std::size_t i = 0; i < made.fill.size(); ++i) in.take_any();
    made.align = in.take_any();
  } else if (!in.at_end() && aligns.find(in.peek()) != std::string_view::npos) {
    made.align = in.take_any();
  }
  if (in.peek() == '+' || in.peek() == '-' || in.peek() == ' ') made.sign = in.take_any();
  made.alternate = in.take('#');
  if (in.peek() == '0') {
    in.take('0');
    if (made.align == '\0') made.align = '=', made.fill = "0";
  }
  made.width = in.take_number();
  if (in.peek() == ',' || in.peek() == '_') made.grouping = in.take_any();
  if (in.take('.')) {
    if (!is_format_digit(in.peek())) in.fail("lacks a precision after its point");
    made.precision = static_cast<int>(in.take_number());
  }
  if (!in.at_end()) made.type = in.take_any();
  if (!in.at_end()) in.fail("is not valid");
  return made;
}

std::string padded(const std::string& sign, const std::string& text, const FormatSpecification& how, char align) {
  const std::size_t length = length_of(sign) + length_of(text);
  const std::size_t missing = how.width - std::min(how.width, length);
  if (how.align != '\0') align = how.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](std::size_t count) {
    std::string made;
    for (std::size_t i = 0; i < count; ++i) made += how.fill;
    return made;
  };
  if (align == '=') return sign + fill(missing) + text;
  return fill(left) + sign + text + fill(missing - left);
}

std::string formatted_number(const Value& value, const FormatSpecification& how, const FormatReader& in) {
  const bool real_type = std::string_view("eEfFgG%").find(how.type) != std::string_view::npos && how.type != '\0';
  std::string digits, prefix;
  bool negative = false;
  if (value.is_whole() && !real_type) {
    if (how.type != '\0' && std::string_view("dbcoxX").find(how.type) == std::string_view::npos) {
      in.fail("does not fit a number");
    }
    const std::int64_t number = value.whole();
    if (how.type == 'c' && (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))) {
      in.fail("does not fit " + std::to_string(number));
    }
    negative = number < 0;
    const auto size = static_cast<std::uint64_t>(number);
    digits = whole_digits(negative ? 0 - size : size, how);
    if (how.alternate && std::string_view("boxX").find(how.type) != std::string_view::npos && how.type != '\0') {
      prefix = std::string("0") + how.type;
    }
  } else {
    negative = std::signbit(value.real()) && !std::isnan(value.real());
    digits = real_digits(std::fabs(value.real()), how, in);
  }
  const bool bits = how.type == 'x' || how.type == 'X' || how.type == 'o' || how.type == 'b';
  if (how.grouping != '\0') {
    if (how.fill == "0" && how.align == '=') refuse_template(in.place(), "a group separator with leading zeros");
    digits = grouped(digits, how.grouping, bits ? 4 : 3);
  }
  return padded(sign_of(negative, how.sign) + prefix, digits, how, '>');
}

}  // namespace maestro
