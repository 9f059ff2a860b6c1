// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_lexer.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

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

/// Line breaks as \n; the last is not part of the template.
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

  /// Text up to the next tag, and the tag.
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
    if (sign == '-') {
      text.erase(text.find_last_not_of(spaces) + 1);
    } else if (sign != '+' && kind != '{') {
      const std::size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_begins_) && text.find_first_not_of(spaces, line) == std::string::npos) text.erase(line);
    }
    if (!text.empty()) push(Kind::text, text);
    skip(length);
    const bool signed_tag = sign == '-' || (sign == '+' && kind != '{');
    if (kind == '#') return lex_comment();
    push(kind == '{' ? Kind::output : Kind::tag, "");
    skip(signed_tag ? 3 : 2);
    lex_tag(kind == '{' ? '}' : '%');
  }

  void lex_comment() {
    const std::size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("a comment {# has no end");
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

  /// The inside of a tag, and its end: `mark` and a brace.
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
    fail("a tag has no end");
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
      fail("\"" + printable(std::string_view(&c, 1)) + "\" is no part of an expression");
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
  void lex_number() {
    std::size_t length = 0;
    while (is_digit(peek(length))) ++length;
    const bool real = peek(length) == '.' && is_digit(peek(length + 1));
    if (real) {
      for (++length; is_digit(peek(length));) ++length;
    }
    if (is_word(peek(length))) refuse_template({name_, line_}, "number \"" + source_.substr(at_, length + 1) + "\"");
    if (length > 15) fail("a number has more than 15 digits");
    take(real ? Kind::real : Kind::integer, length);
  }
  void lex_string(char quote) {
    std::string value;
    const int line = line_;
    for (skip(1); peek() != quote; skip(1)) {
      if (at_ >= source_.size()) fail_template({name_, line}, "a string has no end");
      if (peek() != '\\') {
        value += peek();
        continue;
      }
      skip(1);
      constexpr std::string_view names = "nrt\\'\"", characters = "\n\r\t\\'\"";
      const std::size_t known = names.find(peek());
      if (peek() == '\0' || known == std::string_view::npos) {
        refuse_template({name_, line_}, "escape \"\\" + printable(std::string(1, peek())) + "\"");
      }
      value += characters[known];
    }
    skip(1);
    tokens_.push_back({Kind::string, std::move(value), line});
  }

  std::string source_;
  std::string_view name_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // at at_, which is behind a tag or at the start
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
  return Lexer(source, name).run();
}

}  // namespace maestro
