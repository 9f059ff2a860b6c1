// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_expressions.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/core/printable.hpp"

namespace maestro {

using Parser = TemplateExpressionParser;
using Expression = TemplateExpression;
using Token = TemplateToken;

namespace {

constexpr int most_parts = 2000;  // of a tag: bounds the depth of recursion

}  // namespace

std::string Parser::found() const {
  return at(Token::Kind::end) || at(Token::Kind::end_of_tag) ? "the end of the tag" : printable(now().text);
}

bool Parser::names(std::string_view text) const {
  return std::ranges::any_of(tokens_,
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
  Expression made = parse_condition();
  if (at_symbol(",")) refuse("a tuple without parentheses");
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

/// Operands of `parse` with the operators of `symbols` between them, from the left.
template <class Parse>
Expression Parser::chain(std::initializer_list<std::string_view> symbols, Parse parse) {
  Expression left = parse();
  while ((at(Token::Kind::symbol) || at(Token::Kind::name)) &&
         std::ranges::find(symbols, now().text) != symbols.end()) {
    std::string text = now().text;
    take();
    left = make(Expression::Kind::binary, std::move(text), list_of(std::move(left), parse()));
  }
  return left;
}
Expression Parser::parse_or() {
  return chain({"or"}, [this] { return chain({"and"}, [this] { return parse_not(); }); });
}
Expression Parser::parse_not() {
  count_part();
  if (take_name("not")) return make(Expression::Kind::unary, "not", list_of(parse_not()));
  return parse_comparison();
}
Expression Parser::parse_comparison() {
  Expression left = parse_sum();
  bool compared = false;
  while (true) {
    std::string text = now().text;
    const bool symbol = at(Token::Kind::symbol) &&
                        (text == "==" || text == "!=" || text == "<" || text == "<=" || text == ">" || text == ">=");
    const bool outside = at_name("not") && tokens_[at_ + 1].text == "in";
    if (!symbol && !outside && !at_name("in")) return left;
    if (compared) refuse("a chain of comparisons");
    compared = true;
    take();
    if (outside) take();
    left = make(Expression::Kind::binary, outside ? "not in" : std::move(text), list_of(std::move(left), parse_sum()));
  }
}
Expression Parser::parse_sum() {
  return chain({"+", "-"}, [this] {
    return chain({"~"}, [this] { return chain({"*", "/", "//", "%"}, [this] { return parse_unary(); }); });
  });
}
Expression Parser::parse_unary() {
  count_part();
  if (at_symbol("-") || at_symbol("+")) {
    std::string text = now().text;
    take();
    return make(Expression::Kind::unary, std::move(text), list_of(parse_unary()));
  }
  Expression value = parse_postfix(parse_primary());
  if (at_symbol("**")) refuse("the operator **");
  return parse_filters(std::move(value));
}

Expression Parser::parse_primary() {
  count_part();
  if (at(Token::Kind::string)) return parse_string();
  if (at(Token::Kind::integer) || at(Token::Kind::real)) return parse_number();
  if (at(Token::Kind::name)) return parse_name();
  if (take_symbol("(")) {
    Expression inside = parse_condition();
    if (at_symbol(",")) refuse("a tuple");
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
  made.value = text;
  return made;
}
Expression Parser::parse_number() {
  Expression made = make(Expression::Kind::literal);
  const std::string& text = now().text;
  if (at(Token::Kind::integer)) {
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    made.value = number;
  } else {
    double number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    made.value = number;
  }
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
      Expression key = make(Expression::Kind::literal);
      key.value = expect_name();
      value = make(Expression::Kind::item, "", list_of(std::move(value), std::move(key)));
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
  if (bounds.empty() || bounds.size() > 3) fail("a subscript has no index, or more than three bounds");
  Expression made = make(Expression::Kind::slice, "", list_of(std::move(value)));
  for (Expression& bound : bounds) made.parts.push_back(std::move(bound));
  while (made.parts.size() < 4) made.parts.push_back(make(Expression::Kind::literal));
  return made;
}
Expression Parser::parse_call(Expression callee) {
  Expression made = make(Expression::Kind::call);
  if (callee.kind == Expression::Kind::name) {
    made.text = callee.text;
  } else if (callee.kind == Expression::Kind::item && callee.parts[1].value.is_string()) {
    made.method = true;
    made.text = callee.parts[1].value.get<std::string>();
    made.parts.push_back(std::move(callee.parts[0]));
  } else {
    refuse("a call of a value");
  }
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
    } else if (!made.names.empty()) {
      fail("an argument without a name stands behind another with a name");
    }
    made.parts.push_back(parse_condition());
    if (!at_symbol(")")) expect_symbol(",");
  }
}

Expression Parser::parse_filters(Expression value) {
  while (true) {
    if (take_symbol("|")) {
      value = make(Expression::Kind::filter, expect_name(), list_of(std::move(value)));
      if (take_symbol("(")) parse_arguments(value);
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
  if (take_symbol("(")) return parse_arguments(test);
  const bool value =
      at(Token::Kind::string) || at(Token::Kind::integer) || at(Token::Kind::real) || at_symbol("[") || at_symbol("{");
  const bool name = at(Token::Kind::name) && !at_name("else") && !at_name("or") && !at_name("and") && !at_name("is") &&
                    !at_name("if") && !at_name("in") && !at_name("not");
  if (value || name) test.parts.push_back(parse_postfix(parse_primary()));
}

}  // namespace maestro
