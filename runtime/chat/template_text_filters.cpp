// SPDX-License-Identifier: Apache-2.0
// Filters of texts and numbers.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_text.hpp"
#include "runtime/tokenizer/character.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Call = TemplateCall;
using Kind = TemplateValue::Kind;

namespace {

/// Returns a text that is made from the operand, safe if the operand is.
Value like_operand(const Call& call, std::string text) {
  call.check_length(text);
  return call.operand().is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
}

template <std::string (*change)(std::string_view)>
Value changed(const Call& call) {
  call.takes(1);
  return like_operand(call, change(call.printed_operand()));
}
std::string upper(std::string_view text) {
  return with_case(text, CaseKind::upper);
}
std::string lower(std::string_view text) {
  return with_case(text, CaseKind::lower);
}
std::string unchanged(std::string_view text) {
  return std::string(text);
}

/// Returns Jinja's title: a word begins after a space, a hyphen or an opening bracket.
std::string title(std::string_view text) {
  std::string made;
  std::u32string word;
  bool separators = false;
  const auto finish = [&] {
    made += with_case(text_of(std::u32string_view(word).substr(0, 1)), CaseKind::upper);
    if (!word.empty()) made += with_case(text_of(word.substr(1)), CaseKind::lower);
    word.clear();
  };
  for (const char32_t point : points_of(text)) {
    const bool separates = is_space(point) || std::u32string_view(U"-({[<").find(point) != std::u32string_view::npos;
    if (separates != separators) finish();
    separators = separates;
    word += point;
  }
  finish();
  return made;
}

Value trim(const Call& call) {
  call.takes(2, {"chars"});
  const Value given = call.argument(1, Value(), "chars");
  const std::string* characters = given.is_none() ? nullptr : &call.text_of(given);
  return like_operand(call, std::string(stripped(call.printed_operand(), characters, true, true)));
}

Value replace(const Call& call) {
  call.takes(4, {"old", "new", "count"});
  if (!call.has(1, "old") || !call.has(2, "new")) call.fail("needs a text and its replacement");
  const auto text = [&](std::size_t index, const char* name) {
    return Value(printed(call.argument(index, Value(), name), call.place()));
  };
  TemplateArguments arguments{{call.printed_operand(), text(1, "old"), text(2, "new")}, {}};
  const Value count = call.argument(3, Value(), "count");
  if (!count.is_none()) arguments.values.push_back(count);
  return method_value("replace", arguments, call.place());
}

Value indent(const Call& call) {
  call.takes(4, {"width", "first", "blank"});
  const Value width = call.argument(1, 4, "width");
  const bool blank = is_true(call.argument(3, false, "blank"));
  const std::int64_t spaces = width.is_whole() ? std::clamp<std::int64_t>(width.whole(), 0, 10'000) : 0;
  const std::string before = width.is_text() ? width.text() : std::string(static_cast<std::size_t>(spaces), ' ');
  const Value lines = method_value("splitlines", {{Value(call.text() + "\n")}, {}}, call.place());
  std::string made = is_true(call.argument(2, false, "first")) ? before : "";
  for (std::size_t i = 0; i < lines.elements().size(); ++i) {
    const std::string& line = lines.elements()[i].text();
    if (i > 0) made += "\n" + (line.empty() && !blank ? "" : before);
    made += line;
    call.check_length(made);
  }
  return like_operand(call, std::move(made));
}

Value truncate(const Call& call) {
  call.takes(5, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = call.whole_argument(1, 255, "length");
  const std::u32string end = points_of(call.text_argument(3, "...", "end"));
  const std::int64_t leeway = call.whole_argument(4, 5, "leeway");
  std::u32string points = points_of(call.text());
  const auto size = static_cast<std::int64_t>(points.size());
  if (length < static_cast<std::int64_t>(end.size()) || leeway < 0) call.fail("has a length below its end's");
  if (size <= length + leeway) return call.operand();
  points.resize(static_cast<std::size_t>(length) - end.size());
  const std::size_t word = points.rfind(U' ');
  if (!is_true(call.argument(2, false, "killwords")) && word != std::u32string::npos) points.resize(word);
  return like_operand(call, text_of(points + end));
}

Value word_count(const Call& call) {
  call.takes(1);
  std::int64_t words = 0;
  bool inside = false;
  for (const char32_t point : points_of(call.printed_operand())) {
    const bool word = class_of(point).word();
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return words;
}

Value center(const Call& call) {
  call.takes(2, {"width"});
  return like_operand(
      call, method_value("center", {{call.printed_operand(), call.argument(1, 80, "width")}, {}}, call.place()).text());
}

Value safe(const Call& call) {
  call.takes(1);
  return Value::markup(call.printed_operand());
}
Value escape(const Call& call) {
  call.takes(1);
  return Value::markup(call.operand().is_markup() ? call.text() : escaped_html(call.printed_operand()));
}
Value force_escape(const Call& call) {
  call.takes(1);
  return Value::markup(escaped_html(call.printed_operand()));
}

Value format(const Call& call) {
  const TemplateArguments& given = call.arguments();
  if (given.named.empty()) {
    const Value values = Value::tuple({given.values.begin() + 1, given.values.end()});
    return like_operand(call, percent_formatted(call.printed_operand(), values, call.place()));
  }
  call.takes(1, {});
  return {};
}

// ---- numbers ----

void check_defined(const Call& call) {
  if (call.operand().is_undefined()) call.fail("takes no undefined value");
}

/// Returns an integer in another base, with or without the base's prefix.
Value based(std::string_view text, std::int64_t base) {
  std::string digits = lower(stripped(text, nullptr, true, true));
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const std::string prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "none";
  if (digits.starts_with(prefix)) digits.erase(0, 2);
  std::int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [at, problem] = std::from_chars(digits.data(), end, number, static_cast<int>(base));
  if (digits.empty() || digits[0] == '-' || problem != std::errc() || at != end) return Value::undefined();
  return negative ? -number : number;
}

Value to_int(const Call& call) {
  call.takes(3, {"default", "base"});
  check_defined(call);
  const Value& value = call.operand();
  const std::int64_t base = call.whole_argument(2, 10, "base");
  if (value.is_whole()) return value.whole();
  double number = 0;
  if (value.is_text()) {
    if (base < 2 || base > 36) call.fail("has a base that is not from 2 to 36");
    const Value whole = base == 10 ? number_in(value.text(), false) : based(value.text(), base);
    if (!whole.is_undefined()) return whole;
    const Value real = number_in(value.text(), true);
    if (real.is_undefined()) return call.argument(1, 0, "default");
    number = real.real();
  } else if (value.is(Kind::real)) {
    number = value.real();
  } else {
    return call.argument(1, 0, "default");
  }
  if (!std::isfinite(number)) return call.argument(1, 0, "default");
  if (std::fabs(number) >= 9.2e18) call.fail("makes a whole number beyond 64 bits");
  return static_cast<std::int64_t>(number);
}

Value to_float(const Call& call) {
  call.takes(2, {"default"});
  check_defined(call);
  const Value& value = call.operand();
  if (value.is_number()) return value.real();
  const Value number = value.is_text() ? number_in(value.text(), true) : Value::undefined();
  return number.is_undefined() ? call.argument(1, 0.0, "default") : number;
}

Value round(const Call& call) {
  call.takes(3, {"precision", "method"});
  const Value& value = call.operand();
  const std::int64_t precision = call.whole_argument(1, 0, "precision");
  const std::string method = call.text_argument(2, "common", "method");
  if (!value.is_number()) call.fail("takes a number");
  if (precision < 0 || precision > 300) call.fail("has a precision that is not from 0 to 300");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = value.real() * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
  }
  if (method != "common") call.fail("has the method \"common\", \"ceil\" or \"floor\"");
  if (value.is_whole()) return value.whole();
  std::array<char, 700> digits{};
  (void)std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), value.real());
  return number_in(digits.data(), true);
}

Value absolute(const Call& call) {
  call.takes(1);
  const Value& value = call.operand();
  if (!value.is_number()) call.fail("takes a number");
  if (value.is(Kind::real)) return std::fabs(value.real());
  return value.whole() < 0 ? negated(value, call.place()) : Value(value.whole());
}

}  // namespace

const TemplateTable& text_filters() {
  static const TemplateTable table{{"trim", trim},
                                   {"upper", changed<upper>},
                                   {"lower", changed<lower>},
                                   {"capitalize", changed<capitalized>},
                                   {"title", changed<title>},
                                   {"string", changed<unchanged>},
                                   {"replace", replace},
                                   {"indent", indent},
                                   {"truncate", truncate},
                                   {"wordcount", word_count},
                                   {"center", center},
                                   {"safe", safe},
                                   {"escape", escape},
                                   {"e", escape},
                                   {"forceescape", force_escape},
                                   {"format", format},
                                   {"int", to_int},
                                   {"float", to_float},
                                   {"round", round},
                                   {"abs", absolute},
                                   {"tojson", json_text}};
  return table;
}

}  // namespace maestro
