// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_expressions.hpp"

#include <algorithm>
#include <charconv>
#include <span>

#include "runtime/chat/template_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Parser = TemplateExpressionParser;
using Expression = TemplateExpression;
using Token = TemplateToken;

namespace {

constexpr int most_parts = 2000;  // in a tag: bounds recursion

}  // namespace

std::string Parser::found() const {
  return at(Token::Kind::end) || at(Token::Kind::end_of_tag) ? "the end of the tag" : printable(now().text);
}

bool Parser::names(std::string_view text, std::size_t begin, std::size_t end) const {
  const auto all = std::span(tokens_).first(std::min(end, tokens_.size())).subspan(begin);
  return std::ranges::any_of(all,
                             [&](const Token& token) { return token.kind == Token::Kind::name && token.text == text; });
}

bool Parser::take() {
  if (at(Token::Kind::end_of_tag)) parts_ = 0;
  ++at_;
  return true;
}

void Parser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) fail("\"" + std::string(text) + "\" is missing before " + found());
}

std::string Parser::expect_name() {
  if (!at(Token::Kind::name)) fail("a name is missing before " + found());
  std::string name = now().text;
  take();
  return name;
}

void Parser::count_part() {
  if (++parts_ > most_parts) fail("a tag has more than 2,000 parts");
}

Expression Parser::make(Expression::Kind kind, std::string text, std::vector<Expression> parts) {
  count_part();
  Expression made;
  made.kind = kind;
  made.line = now().line;
  made.text = std::move(text);
  made.parts = std::move(parts);
  return made;
}

std::vector<Expression> Parser::list_of(Expression first) {
  std::vector<Expression> list;
  list.push_back(std::move(first));
  return list;
}

std::vector<Expression> Parser::list_of(Expression first, Expression second) {
  std::vector<Expression> list = list_of(std::move(first));
  list.push_back(std::move(second));
  return list;
}

// ---- expressions, from the weakest operator to the strongest ----

Expression Parser::parse_whole() {
  return parse_tuple([this] { return parse_condition(); }, Token::Kind::end_of_tag, "");
}

Expression Parser::parse_listed() {
  return parse_tuple([this] { return parse_or(); }, Token::Kind::end_of_tag, "");
}

/// Parses values of `parse` with commas between them as a tuple, a value without a comma as itself.
template <class Parse>
Expression Parser::parse_tuple(Parse parse, Token::Kind end, std::string_view symbol) {
  const auto ends = [&] {
    return at(Token::Kind::end_of_tag) || (at(end) && (symbol.empty() || now().text == symbol));
  };
  if (ends() && !symbol.empty()) return make(Expression::Kind::tuple);
  Expression first = parse();
  if (!at_symbol(",")) return first;
  Expression made = make(Expression::Kind::tuple, "", list_of(std::move(first)));
  while (take_symbol(",") && !ends()) made.parts.push_back(parse());
  return made;
}

Expression Parser::parse_target() {
  const auto item = [this] {
    if (take_symbol("(")) {
      Expression inside = parse_target();
      expect_symbol(")");
      return inside;
    }
    Expression made = make(Expression::Kind::name, expect_name());
    if (!take_symbol(".")) return made;
    return make(Expression::Kind::attribute, expect_name(), list_of(std::move(made)));
  };
  Expression first = item();
  if (!at_symbol(",")) return first;
  Expression made = make(Expression::Kind::tuple, "", list_of(std::move(first)));
  while (take_symbol(",") && (at_symbol("(") || (at(Token::Kind::name) && !at_name("in"))))
    made.parts.push_back(item());
  return made;
}

Expression Parser::parse_condition() {
  Expression value = parse_or();
  while (take_name("if")) {
    Expression made = make(Expression::Kind::condition, "", list_of(parse_or(), std::move(value)));
    if (take_name("else")) made.parts.push_back(parse_condition());
    value = std::move(made);
  }
  return value;
}

/// Parses operands of `parse` with the operators of `symbols` between them, from the left.
template <class Parse>
Expression Parser::chain(Expression::Kind kind, std::initializer_list<std::string_view> symbols, Parse parse) {
  Expression left = parse();
  while ((at(Token::Kind::symbol) || at(Token::Kind::name)) &&
         std::ranges::find(symbols, now().text) != symbols.end()) {
    std::string text = now().text;
    take();
    left = make(kind, std::move(text), list_of(std::move(left), parse()));
  }
  return left;
}
Expression Parser::parse_or() {
  return chain(Expression::Kind::logical, {"or"},
               [this] { return chain(Expression::Kind::logical, {"and"}, [this] { return parse_not(); }); });
}
Expression Parser::parse_not() {
  count_part();
  if (take_name("not")) return make(Expression::Kind::unary, "not", list_of(parse_not()));
  return parse_comparison();
}
Expression Parser::parse_comparison() {
  Expression left = parse_sum();
  for (bool first = true;; first = false) {
    std::string text = now().text;
    const bool symbol = at(Token::Kind::symbol) &&
                        (text == "==" || text == "!=" || text == "<" || text == "<=" || text == ">" || text == ">=");
    const bool outside = at_name("not") && tokens_[at_ + 1].text == "in";
    if (!symbol && !outside && !at_name("in")) return left;
    take();
    if (outside) take();
    if (first) left = make(Expression::Kind::comparison, "", list_of(std::move(left)));
    left.names.push_back(outside ? "not in" : std::move(text));
    left.parts.push_back(parse_sum());
  }
}
Expression Parser::parse_sum() {
  constexpr auto kind = Expression::Kind::binary;
  const auto power = [this] { return chain(kind, {"**"}, [this] { return parse_unary(true); }); };
  const auto product = [&] { return chain(kind, {"*", "/", "//", "%"}, power); };
  return chain(kind, {"+", "-"}, [&] { return chain(kind, {"~"}, product); });
}
Expression Parser::parse_unary(bool with_filters) {
  count_part();
  if (at_symbol("-") || at_symbol("+")) {
    std::string text = now().text;
    take();
    Expression value = make(Expression::Kind::unary, std::move(text), list_of(parse_unary(false)));
    return with_filters ? parse_filters(std::move(value)) : value;
  }
  Expression value = parse_postfix(parse_primary());
  return with_filters ? parse_filters(std::move(value)) : value;
}

Expression Parser::parse_primary() {
  count_part();
  if (at(Token::Kind::string)) return parse_string();
  if (at(Token::Kind::integer) || at(Token::Kind::real)) return parse_number();
  if (at(Token::Kind::name)) return parse_name();
  if (take_symbol("(")) {
    Expression inside = parse_tuple([this] { return parse_condition(); }, Token::Kind::symbol, ")");
    expect_symbol(")");
    return inside;
  }
  if (take_symbol("[")) return parse_items(Expression::Kind::list, "]");
  if (take_symbol("{")) return parse_items(Expression::Kind::mapping, "}");
  fail("a value is missing before " + found());
}
Expression Parser::parse_string() {
  std::string text;
  for (; at(Token::Kind::string); take()) text += now().text;
  Expression made = make(Expression::Kind::literal);
  made.value = std::move(text);
  return made;
}
Expression Parser::parse_number() {
  Expression made = make(Expression::Kind::literal);
  const std::string& text = now().text;
  made.value = number_in(text, at(Token::Kind::real));
  if (text.size() > 1 && text[0] == '0' && at(Token::Kind::integer)) {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const bool whole = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, number, base) ==
                       std::from_chars_result{end, std::errc()};
    made.value = whole ? TemplateValue(number) : TemplateValue::undefined();
  }
  if (made.value.is_undefined()) fail("\"" + printable(text) + "\" is not a number of 64 bits");
  take();
  return made;
}
Expression Parser::parse_name() {
  const std::string name = expect_name();
  Expression made = make(Expression::Kind::literal);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    made.value = name == "true" || name == "True";
  } else if (name != "none" && name != "None") {
    made.kind = Expression::Kind::name;
    made.text = name;
  }
  return made;
}
Expression Parser::parse_items(Expression::Kind kind, std::string_view end) {
  Expression made = make(kind);
  while (!take_symbol(end)) {
    made.parts.push_back(parse_condition());
    if (kind == Expression::Kind::mapping) {
      expect_symbol(":");
      made.parts.push_back(parse_condition());
    }
    if (!at_symbol(end)) expect_symbol(",");
  }
  return made;
}

Expression Parser::parse_postfix(Expression value) {
  while (true) {
    if (take_symbol(".")) {
      const bool index = at(Token::Kind::integer);
      Expression key = index ? parse_number() : Expression();
      value = index ? make(Expression::Kind::item, "", list_of(std::move(value), std::move(key)))
                    : make(Expression::Kind::attribute, expect_name(), list_of(std::move(value)));
    } else if (take_symbol("[")) {
      value = parse_subscript(std::move(value));
    } else if (take_symbol("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}
Expression Parser::parse_subscript(Expression value) {
  std::vector<Expression> bounds;
  bool slice = false;
  while (!take_symbol("]")) {
    const bool omitted = at_symbol(":");
    bounds.push_back(omitted ? make(Expression::Kind::literal) : parse_condition());
    if (take_symbol(":")) {
      slice = true;
      if (at_symbol("]")) bounds.push_back(make(Expression::Kind::literal));
    } else if (!at_symbol("]")) {
      fail("\"]\" is missing before " + found());
    }
  }
  if (!slice && bounds.size() == 1) {
    return make(Expression::Kind::item, "", list_of(std::move(value), std::move(bounds[0])));
  }
  if (bounds.empty() || bounds.size() > 3) fail("a subscript without an index, or with more than three bounds");
  Expression made = make(Expression::Kind::slice, "", list_of(std::move(value)));
  for (Expression& bound : bounds) made.parts.push_back(std::move(bound));
  while (made.parts.size() < 4) made.parts.push_back(make(Expression::Kind::literal));
  return made;
}
Expression Parser::parse_call(Expression callee) {
  Expression made = make(Expression::Kind::call, "", list_of(std::move(callee)));
  parse_arguments(made);
  return made;
}
void Parser::parse_arguments(Expression& made) {
  while (!take_symbol(")")) {
    const bool named =
        at(Token::Kind::name) && tokens_[at_ + 1].kind == Token::Kind::symbol && tokens_[at_ + 1].text == "=";
    if (named) {
      std::string name = expect_name();
      take();
      made.names.push_back(std::move(name));
    } else if (take_symbol("**")) {
      made.names.push_back("**");
    } else if (take_symbol("*")) {
      made.names.push_back("*");
    } else if (!made.names.empty()) {
      fail("an argument without a name follows one with a name");
    }
    made.parts.push_back(parse_condition());
    if (!at_symbol(")")) expect_symbol(",");
  }
}

Expression Parser::parse_body_filters(bool first) {
  Expression value = make(Expression::Kind::body);
  if (first) {
    value = make(Expression::Kind::filter, expect_name(), list_of(std::move(value)));
    if (take_symbol("(")) parse_arguments(value);
  }
  return parse_filters(std::move(value));
}
Expression Parser::parse_filters(Expression value) {
  while (true) {
    if (take_symbol("|")) {
      value = make(Expression::Kind::filter, expect_name(), list_of(std::move(value)));
      if (take_symbol("(")) parse_arguments(value);
    } else if (take_symbol("(")) {
      value = parse_call(std::move(value));
    } else if (take_name("is")) {
      const bool negated = take_name("not");
      value = make(Expression::Kind::test, expect_name(), list_of(std::move(value)));
      parse_test_argument(value);
      if (negated) value = make(Expression::Kind::unary, "not", list_of(std::move(value)));
    } else {
      return value;
    }
  }
}
void Parser::parse_test_argument(Expression& test) {
  if (at_name("is")) fail("a test follows a test; put parentheses around the first");
  if (take_symbol("(")) return parse_arguments(test);
  const bool value =
      at(Token::Kind::string) || at(Token::Kind::integer) || at(Token::Kind::real) || at_symbol("[") || at_symbol("{");
  const bool name = at(Token::Kind::name) && !at_name("else") && !at_name("or") && !at_name("and") && !at_name("is") &&
                    !at_name("if") && !at_name("in") && !at_name("not") && !at_name("recursive");
  if (value || name) test.parts.push_back(parse_postfix(parse_primary()));
}

}  // namespace maestro
