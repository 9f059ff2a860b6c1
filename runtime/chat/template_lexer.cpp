// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_lexer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/tokenizer/character.hpp"

namespace maestro {

namespace {

using Kind = TemplateToken::Kind;

constexpr std::string_view spaces = " \t\n\r\f\v";

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

/// Returns the source with line breaks as \n, without the last.
std::string normalized(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : source_(normalized(source)), name_(name) {}

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) lex_text();
    push(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const { fail_template({name_, line_}, problem); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void skip(std::size_t count) {
    for (; count > 0 && at_ < source_.size(); --count) line_ += source_[at_++] == '\n' ? 1 : 0;
  }
  void skip_spaces() { skip(std::min(source_.find_first_not_of(spaces, at_), source_.size()) - at_); }

  [[nodiscard]] std::size_t next_tag() const {
    std::size_t open = source_.find('{', at_);
    while (open != std::string::npos) {
      const char next = open + 1 < source_.size() ? source_[open + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return open;
      open = source_.find('{', open + 1);
    }
    return open;
  }

  /// Removes the white space that a tag with this sign strips before it.
  void trim_before(std::string& text, char sign, bool trims_line) const {
    if (sign == '-') {
      text.erase(text.find_last_not_of(spaces) + 1);
    } else if (sign != '+' && trims_line) {
      const std::size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_begins_) && text.find_first_not_of(spaces, line) == std::string::npos) text.erase(line);
    }
  }
  /// Reads the text up to the next tag, and the tag.
  void lex_text() {
    const std::size_t open = next_tag();
    std::string text = source_.substr(at_, open - at_);
    const std::size_t length = text.size();
    if (open == std::string::npos) {
      if (!text.empty()) push(Kind::text, text);
      return skip(length);
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    trim_before(text, sign, kind != '{');
    if (!text.empty()) push(Kind::text, text);
    skip(length);
    const bool signed_tag = sign == '-' || sign == '+';
    if (kind == '#') return lex_comment();
    if (kind == '%' && takes_name("raw", signed_tag ? 3 : 2)) return lex_raw();
    push(kind == '{' ? Kind::output : Kind::tag, "");
    skip(signed_tag ? 3 : 2);
    lex_tag(kind == '{' ? '}' : '%');
  }

  /// Returns whether a tag, whose inside begins `ahead` bytes from here, has only this name; if so, skips it.
  bool takes_name(std::string_view name, std::size_t ahead) {
    std::size_t at = source_.find_first_not_of(spaces, at_ + ahead);
    if (at == std::string::npos || source_.compare(at, name.size(), name) != 0) return false;
    at = source_.find_first_not_of(spaces, at + name.size());
    if (at == std::string::npos) return false;
    end_sign_ = source_[at] == '-' || source_[at] == '+' ? source_[at] : '\0';
    if (end_sign_ != '\0') ++at;
    if (source_.compare(at, 2, "%}") != 0) return false;
    skip(at + 2 - at_);
    return true;
  }
  /// Reads the text up to {% endraw %} unchanged.
  void lex_raw() {
    const int line = line_;
    after_tag(end_sign_, false);
    const std::size_t begin = at_;
    for (std::size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", at_)) {
      std::string text = source_.substr(begin, open - begin);
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      skip(open - at_);
      if (!takes_name("endraw", sign == '-' || sign == '+' ? 3 : 2)) {
        skip(2);
        continue;
      }
      trim_before(text, sign, true);
      if (!text.empty()) tokens_.push_back({Kind::text, std::move(text), line});
      return after_tag(end_sign_, true);
    }
    fail_template({name_, line}, "a tag lacks {% endraw %}");
  }

  void lex_comment() {
    const std::size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("a comment {# is not closed");
    const char sign = source_[end - 1];
    skip(end + 2 - at_);
    after_tag(sign, true);
  }

  void after_tag(char sign, bool trims_line_break) {
    if (sign == '-') {
      skip_spaces();
    } else if (sign != '+' && trims_line_break && peek() == '\n') {
      skip(1);
    }
    line_begins_ = source_[at_ - 1] == '\n';
  }

  /// Reads the inside of a tag, and its end: `mark` and a brace.
  void lex_tag(char mark) {
    int nested = 0;
    for (skip_spaces(); at_ < source_.size(); skip_spaces()) {
      const bool has_sign = (peek() == '-' || (peek() == '+' && mark == '%')) && peek(1) == mark && peek(2) == '}';
      if (nested == 0 && (has_sign || (peek() == mark && peek(1) == '}'))) {
        const char sign = has_sign ? peek() : '\0';
        push(Kind::end_of_tag, "");
        skip(has_sign ? 3 : 2);
        return after_tag(sign, mark == '%');
      }
      lex_token();
      const std::string& last = tokens_.back().text;
      if (tokens_.back().kind != Kind::symbol) continue;
      if (last == "(" || last == "[" || last == "{") ++nested;
      if ((last == ")" || last == "]" || last == "}") && nested > 0) --nested;
    }
    fail("a tag is not closed");
  }

  void lex_token() {
    const char c = peek();
    if (c == '\'' || c == '"') return lex_string(c);
    if (is_digit(c)) return lex_number();
    if (is_word(c)) return take(Kind::name, word_length());
    constexpr std::array<std::string_view, 6> pairs{"==", "!=", ">=", "<=", "//", "**"};
    const std::string_view two = std::string_view(source_).substr(at_, 2);
    if (std::ranges::find(pairs, two) != pairs.end()) return take(Kind::symbol, 2);
    if (std::string_view("+-*/%~[](){}<>=.:|,").find(c) == std::string_view::npos) {
      fail("\"" + printable(std::string_view(&c, 1)) + "\" is not part of an expression");
    }
    take(Kind::symbol, 1);
  }
  [[nodiscard]] std::size_t word_length() const {
    std::size_t length = 0;
    while (is_word(peek(length))) ++length;
    return length;
  }
  void take(Kind kind, std::size_t length) {
    push(kind, source_.substr(at_, length));
    skip(length);
  }
  /// Returns the length of digits, also with single _ between them.
  static std::size_t digits_length(std::string_view text, std::string_view digits) {
    std::size_t length = 0;
    while (length < text.size()) {
      const bool joined = text[length] == '_' && length > 0 && length + 1 < text.size() &&
                          digits.find(text[length + 1]) != std::string_view::npos;
      if (!joined && digits.find(text[length]) == std::string_view::npos) break;
      length += joined ? 2 : 1;
    }
    return length;
  }
  /// Returns the length of a number, and whether it has a point or an exponent.
  [[nodiscard]] std::pair<std::size_t, bool> number_length() const {
    constexpr std::string_view decimal = "0123456789";
    const std::string_view rest = std::string_view(source_).substr(at_);
    if (rest.size() > 2 && rest[0] == '0' && std::string_view("xXbBoO").find(rest[1]) != std::string_view::npos) {
      const std::string_view digits = (rest[1] | 0x20) == 'x'   ? "0123456789abcdefABCDEF"
                                      : (rest[1] | 0x20) == 'b' ? "01"
                                                                : "01234567";
      return {2 + digits_length(rest.substr(2), digits), false};
    }
    std::size_t length = digits_length(rest, decimal);
    const bool index = !tokens_.empty() && tokens_.back().kind == Kind::symbol && tokens_.back().text == ".";
    if (index) return {length, false};  // a.0.1
    const std::size_t before = length;
    const auto part = [&](std::size_t at) { return at < rest.size() ? digits_length(rest.substr(at), decimal) : 0; };
    if (peek(length) == '.' && part(length + 1) > 0) length += 1 + part(length + 1);
    if ((peek(length) | 0x20) == 'e') {
      const std::size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-' ? 1 : 0;
      if (const std::size_t digits = part(length + 1 + sign); digits > 0) length += 1 + sign + digits;
    }
    return {length, length > before};
  }
  void lex_number() {
    const auto [length, real] = number_length();
    if (is_word(peek(length))) fail("\"" + printable(source_.substr(at_, length + 1)) + "\" is not a number");
    if (length > 40) fail("a number has more than 40 characters");
    take(real ? Kind::real : Kind::integer, length);
    std::erase(tokens_.back().text, '_');
  }
  void lex_string(char quote) {
    std::string value;
    const int line = line_;
    for (skip(1); peek() != quote;) {
      if (at_ >= source_.size()) fail_template({name_, line}, "a string is not closed");
      if (peek() == '\\') {
        skip(1);
        lex_escape(value);
      } else {
        value += peek();
        skip(1);
      }
    }
    skip(1);
    tokens_.push_back({Kind::string, std::move(value), line});
  }
  /// Reads the part of a string after a \, as Python does.
  void lex_escape(std::string& value) {
    constexpr std::string_view names = "nrt\\'\"abfv", characters = "\n\r\t\\'\"\a\b\f\v";
    const char name = peek();
    if (name == 'N') refuse_template({name_, line_}, "escape \"\\N\"");
    const std::size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    if (name >= '0' && name <= '7') {
      std::size_t length = 1;
      while (length < 3 && peek(length) >= '0' && peek(length) <= '7') ++length;
      value += code_point(0, length, 8);
    } else if (digits > 0) {
      value += code_point(1, digits, 16);
    } else if (name == '\n') {
      skip(1);
    } else if (const std::size_t known = names.find(name); name != '\0' && known != std::string_view::npos) {
      value += characters[known];
      skip(1);
    } else {
      value += '\\';
    }
  }
  std::string code_point(std::size_t begin, std::size_t length, int base) {
    std::uint32_t point = 0;
    const std::string digits = source_.substr(at_ + std::min(begin, source_.size() - at_), length);
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), point, base).ptr;
    const bool whole = end == digits.data() + digits.size() && digits.size() == length;
    if (!whole || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
      fail("the escape \"\\" + printable(source_.substr(at_, begin + length)) + "\" is not a character");
    }
    skip(begin + length);
    return utf8_of(point);
  }

  std::string source_;
  std::string_view name_;
  std::size_t at_ = 0;
  int line_ = 1;
  char end_sign_ = '\0';     // before the end of the tag that takes_name() skipped
  bool line_begins_ = true;  // at at_: after a tag or at the start
  std::vector<TemplateToken> tokens_;
};

}  // namespace

void fail_template(const TemplatePlace& place, const std::string& problem) {
  throw JobError(std::string(place.name) + ": line " + std::to_string(place.line) +
                 " of the chat template: " + problem);
}

void refuse_template(const TemplatePlace& place, const std::string& construct) {
  fail_template(place,
                construct + " is not supported; without --chat, --prompt takes text that has its format already");
}

std::vector<TemplateToken> lex_template(std::string_view source, std::string_view name) {
  if (valid_utf8_prefix(source) != source.size()) fail_template({name, 1}, "it is not UTF-8");
  return Lexer(source, name).run();
}

}  // namespace maestro
