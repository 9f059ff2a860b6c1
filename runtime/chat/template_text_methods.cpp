// SPDX-License-Identifier: Apache-2.0
// The methods of texts.
#include <algorithm>
#include <optional>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_text.hpp"
#include "runtime/tokenizer/character.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Call = TemplateCall;
using Kind = TemplateValue::Kind;

namespace {

constexpr std::size_t most_parts = 1'000'000;  // in a text that is split
constexpr std::int64_t most_width = longest_template_text / 8;

template <bool left, bool right>
Value strip(const Call& call) {
  call.takes(2);
  const Value given = call.argument(1, Value());
  const std::string* characters = given.is_none() ? nullptr : &call.text_of(given);
  return std::string(stripped(call.text(), characters, left, right));
}

template <CaseKind kind>
Value change_case(const Call& call) {
  call.takes(1);
  return with_case(call.text(), kind);
}

template <std::string (*change)(std::string_view)>
Value changed(const Call& call) {
  call.takes(1);
  return change(call.text());
}

/// Returns the byte range of text[begin:end], from the arguments at `index`; none: begin is beyond the end of the text.
std::optional<std::pair<std::size_t, std::size_t>> range_of(const Call& call, std::size_t index) {
  const std::string& text = call.text();
  const auto size = static_cast<std::int64_t>(length_of(text));
  const auto bound = [&](std::size_t at, std::int64_t absent) {
    const Value given = call.argument(at, Value());
    if (given.is_none()) return absent;
    const std::int64_t point = call.whole_argument(at, Value());
    return point < 0 ? std::max<std::int64_t>(point + size, 0) : point;
  };
  const std::int64_t begin = bound(index, 0), end = std::min(bound(index + 1, size), size);
  if (begin > size || end < begin) return std::nullopt;
  const auto byte_of = [&](std::int64_t point) {
    std::size_t at = 0;
    for (std::int64_t i = 0; i < point; ++i) at += character_at(text, at).bytes;
    return at;
  };
  if (is_ascii(text)) return std::pair(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  return std::pair(byte_of(begin), byte_of(end));
}

/// Returns the index of a text, or -1.
std::int64_t found_at(const Call& call, bool last) {
  call.takes(4);
  const std::string wanted = call.text_argument(1, Value());
  const auto range = range_of(call, 2);
  if (!range) return -1;
  const auto part = std::string_view(call.text()).substr(range->first, range->second - range->first);
  const std::size_t at = last ? part.rfind(wanted) : part.find(wanted);
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(length_of(std::string_view(call.text()).substr(0, range->first + at)));
}

template <bool last>
Value find(const Call& call) {
  return found_at(call, last);
}

template <bool last>
Value index(const Call& call) {
  const std::int64_t found = found_at(call, last);
  if (found < 0) call.fail("does not find its text");
  return found;
}

Value count(const Call& call) {
  call.takes(4);
  const std::string wanted = call.text_argument(1, Value());
  const auto range = range_of(call, 2);
  if (!range) return 0;
  const auto part = std::string_view(call.text()).substr(range->first, range->second - range->first);
  if (wanted.empty()) return length_of(part) + 1;
  std::int64_t made = 0;
  for (std::size_t at = part.find(wanted); at != std::string_view::npos; at = part.find(wanted, at + wanted.size()))
    ++made;
  return made;
}

template <bool start>
Value has_end(const Call& call) {
  call.takes(4);
  const Value ends = call.argument(1, Value());
  const auto range = range_of(call, 2);
  if (!range) return false;
  const auto part = std::string_view(call.text()).substr(range->first, range->second - range->first);
  const auto matches = [&](const Value& end) {
    return start ? part.starts_with(call.text_of(end)) : part.ends_with(call.text_of(end));
  };
  return ends.is(Kind::tuple) ? std::ranges::any_of(ends.elements(), matches) : matches(ends);
}

Value replace(const Call& call) {
  call.takes(4, {"count"});
  const std::string from = call.text_argument(1, Value()), to = call.text_argument(2, Value());
  const std::int64_t most = call.whole_argument(3, -1, "count");
  const std::string& text = call.text();
  std::string made;
  std::size_t begin = 0;
  for (std::int64_t i = 0; i != most; ++i) {
    if (from.empty()) {  // before each character, and at the end
      made += to;
      if (begin == text.size()) return made;
      const std::size_t bytes = character_at(text, begin).bytes;
      made.append(text, begin, bytes);
      begin += bytes;
    } else {
      const std::size_t at = text.find(from, begin);
      if (at == std::string::npos) break;
      made.append(text, begin, at - begin).append(to);
      begin = at + from.size();
    }
    call.check_length(made);
  }
  return made.append(text, begin);
}

/// Splits at white space, at most `most` times; with `last` from the end, and the last part first.
std::vector<std::string> words_of(const std::string& text, std::int64_t most, bool last) {
  std::vector<std::string> parts;
  std::string_view rest = stripped(text, nullptr, !last, last);
  while (!rest.empty()) {
    if (static_cast<std::int64_t>(parts.size()) == most) {
      parts.emplace_back(rest);
      break;
    }
    std::size_t at = last ? rest.size() : 0;
    while (last ? at > 0 : at < rest.size()) {
      const std::size_t begin = last ? character_before(rest, at) : at;
      const Character character = character_at(rest, begin);
      if (is_space(character.point)) break;
      at = last ? begin : at + character.bytes;
    }
    parts.emplace_back(last ? rest.substr(at) : rest.substr(0, at));
    rest = stripped(last ? rest.substr(0, at) : rest.substr(at), nullptr, !last, last);
  }
  return parts;
}

std::vector<std::string> parts_of(const Call& call, const std::string& between, std::int64_t most, bool last) {
  if (between.empty()) call.fail("has an empty separator");
  std::vector<std::string> parts;
  std::string_view rest = call.text();
  while (static_cast<std::int64_t>(parts.size()) != most) {
    const std::size_t at = last ? rest.rfind(between) : rest.find(between);
    if (at == std::string_view::npos) break;
    if (parts.size() == most_parts) call.fail("makes more than 1,000,000 parts");
    parts.emplace_back(last ? rest.substr(at + between.size()) : rest.substr(0, at));
    rest = last ? rest.substr(0, at) : rest.substr(at + between.size());
  }
  parts.emplace_back(rest);
  return parts;
}

template <bool last>
Value split(const Call& call) {
  call.takes(3, {"sep", "maxsplit"});
  const Value between = call.argument(1, Value(), "sep");
  const std::int64_t most = call.whole_argument(2, -1, "maxsplit");
  std::vector<std::string> parts =
      between.is_none() ? words_of(call.text(), most, last) : parts_of(call, call.text_of(between), most, last);
  if (last) std::ranges::reverse(parts);
  Values made;
  for (std::string& part : parts) made.emplace_back(std::move(part));
  return Value::list(std::move(made));
}

Value splitlines(const Call& call) {
  call.takes(2, {"keepends"});
  const bool keeps = is_true(call.argument(1, false, "keepends"));
  const std::string& text = call.text();
  Values made;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const char32_t point = character.point;
    const std::size_t end = at;
    at += character.bytes;
    const bool breaks = (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
                        point == 0x2028 || point == 0x2029;
    if (!breaks) continue;
    if (point == U'\r' && at < text.size() && text[at] == '\n') ++at;
    made.emplace_back(text.substr(begin, (keeps ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) made.emplace_back(text.substr(begin));
  return Value::list(std::move(made));
}

template <bool last>
Value partition(const Call& call) {
  call.takes(2);
  const std::string between = call.text_argument(1, Value());
  if (between.empty()) call.fail("has an empty separator");
  const std::string& text = call.text();
  const std::size_t at = last ? text.rfind(between) : text.find(between);
  if (at == std::string::npos) return Value::tuple(last ? Values{"", "", text} : Values{text, "", ""});
  return Value::tuple({text.substr(0, at), between, text.substr(at + between.size())});
}

Value join(const Call& call) {
  call.takes(2);
  std::string made;
  bool first = true;
  for (const Value& each : elements_of(call.argument(1, Value()), call.place())) {
    made += (first ? "" : call.text()) + call.text_of(each);
    first = false;
    call.check_length(made);
  }
  return made;
}

/// Implements ljust, center, rjust: `left` and `right` are the sides that are filled up.
template <bool left, bool right>
Value justified(const Call& call) {
  call.takes(3);
  const std::int64_t width = call.whole_argument(1, Value());
  const std::string fill = call.text_argument(2, " ");
  if (length_of(fill) != 1) call.fail("fills with one character");
  if (width > most_width) call.fail("makes a text longer than 16 MiB");
  const std::int64_t missing = width - static_cast<std::int64_t>(length_of(call.text()));
  if (missing <= 0) return call.text();
  const std::int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  std::string made;
  for (std::int64_t i = 0; i < before; ++i) made += fill;
  made += call.text();
  for (std::int64_t i = before; i < missing; ++i) made += fill;
  return made;
}

Value zfill(const Call& call) {
  call.takes(2);
  const std::int64_t width = call.whole_argument(1, Value());
  if (width > most_width) call.fail("makes a text longer than 16 MiB");
  std::string made = call.text();
  const std::int64_t missing = width - static_cast<std::int64_t>(length_of(made));
  const bool sign = made.starts_with('-') || made.starts_with('+');
  if (missing > 0) made.insert(sign ? 1 : 0, static_cast<std::size_t>(missing), '0');
  return made;
}

template <bool prefix>
Value without_end(const Call& call) {
  call.takes(2);
  const std::string& text = call.text();
  const std::string end = call.text_argument(1, Value());
  if (!(prefix ? text.starts_with(end) : text.ends_with(end))) return text;
  return prefix ? text.substr(end.size()) : text.substr(0, text.size() - end.size());
}

Value expandtabs(const Call& call) {
  call.takes(2, {"tabsize"});
  const std::int64_t size = call.whole_argument(1, 8, "tabsize");
  if (size > 1000) call.fail("makes a text that is too long");
  std::string made;
  std::int64_t column = 0;
  for (const char32_t point : points_of(call.text())) {
    if (point != U'\t') {
      column = point == U'\n' || point == U'\r' ? 0 : column + 1;
      made += utf8_of(point);
      continue;
    }
    for (std::int64_t i = size <= 0 ? 0 : size - column % size; i > 0; --i, ++column) made += ' ';
    call.check_length(made);
  }
  return made;
}

template <bool (*holds)(char32_t)>
Value all_are(const Call& call) {
  call.takes(1);
  return !call.text().empty() && std::ranges::all_of(points_of(call.text()), holds);
}
bool is_letter(char32_t point) {
  return class_of(point).letter();
}
bool is_alphanumeric(char32_t point) {
  return is_letter(point) || class_of(point).is(CharacterClass::number);
}

/// Implements isdigit, isdecimal and isnumeric, which differ beyond ASCII.
Value is_digits(const Call& call) {
  call.takes(1);
  const std::u32string points = points_of(call.text());
  if (std::ranges::any_of(points, [](char32_t p) { return p > 127 && class_of(p).is(CharacterClass::number); })) {
    call.fail("does not take digits beyond ASCII");
  }
  return !points.empty() && std::ranges::all_of(points, [](char32_t p) { return p >= U'0' && p <= U'9'; });
}

template <CaseKind kind>
Value is_case(const Call& call) {
  call.takes(1);
  const bool cased = std::ranges::any_of(points_of(call.text()), is_cased);
  return cased && with_case(call.text(), kind) == call.text();
}

Value istitle(const Call& call) {
  call.takes(1);
  return std::ranges::any_of(points_of(call.text()), is_cased) && titled(call.text()) == call.text();
}

Value isascii(const Call& call) {
  call.takes(1);
  return is_ascii(call.text());
}

}  // namespace

const TemplateTable& text_methods() {
  static const TemplateTable table{{"strip", strip<true, true>},
                                   {"lstrip", strip<true, false>},
                                   {"rstrip", strip<false, true>},
                                   {"upper", change_case<CaseKind::upper>},
                                   {"lower", change_case<CaseKind::lower>},
                                   {"capitalize", changed<capitalized>},
                                   {"title", changed<titled>},
                                   {"swapcase", changed<with_swapped_case>},
                                   {"replace", replace},
                                   {"split", split<false>},
                                   {"rsplit", split<true>},
                                   {"splitlines", splitlines},
                                   {"partition", partition<false>},
                                   {"rpartition", partition<true>},
                                   {"join", join},
                                   {"find", find<false>},
                                   {"rfind", find<true>},
                                   {"index", index<false>},
                                   {"rindex", index<true>},
                                   {"count", count},
                                   {"startswith", has_end<true>},
                                   {"endswith", has_end<false>},
                                   {"removeprefix", without_end<true>},
                                   {"removesuffix", without_end<false>},
                                   {"ljust", justified<false, true>},
                                   {"rjust", justified<true, false>},
                                   {"center", justified<true, true>},
                                   {"zfill", zfill},
                                   {"expandtabs", expandtabs},
                                   {"format", formatted},
                                   {"isspace", all_are<is_space>},
                                   {"isalpha", all_are<is_letter>},
                                   {"isalnum", all_are<is_alphanumeric>},
                                   {"isdigit", is_digits},
                                   {"isdecimal", is_digits},
                                   {"isnumeric", is_digits},
                                   {"isupper", is_case<CaseKind::upper>},
                                   {"islower", is_case<CaseKind::lower>},
                                   {"istitle", istitle},
                                   {"isascii", isascii}};
  return table;
}

}  // namespace maestro
