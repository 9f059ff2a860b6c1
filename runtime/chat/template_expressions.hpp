// SPDX-License-Identifier: Apache-2.0
// The expressions of a chat template, from its tokens. Not a public header.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/template_tree.hpp"

namespace maestro {

/// Reads tokens from the first to the last. Every function throws JobError.
class TemplateExpressionParser {
 public:
  using Expression = TemplateExpression;
  using Token = TemplateToken;

  TemplateExpressionParser(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens)), name_(name) {}

  /// Parses an expression up to the end of a tag, with all operators; values with commas between them are a tuple.
  Expression parse_whole();
  /// Parses the same without `a if b else c`.
  Expression parse_listed();
  /// Parses the target of {% set %} and {% for %}: a name, a namespace's attribute, or a tuple of targets.
  Expression parse_target();
  /// Parses the filters of a body's text; with `first` the first filter lacks its |.
  Expression parse_body_filters(bool first);
  /// Parses the arguments of a call, after its opening parenthesis.
  void parse_arguments(Expression& made);
  Expression parse_condition();
  /// Parses without `a if b else c`.
  Expression parse_or();

  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] bool at(Token::Kind kind) const { return now().kind == kind; }
  [[nodiscard]] bool at_symbol(std::string_view text) const { return at(Token::Kind::symbol) && now().text == text; }
  [[nodiscard]] bool at_name(std::string_view text) const { return at(Token::Kind::name) && now().text == text; }
  /// Returns whether a tag among these tokens has this name.
  [[nodiscard]] bool names(std::string_view text, std::size_t begin = 0, std::size_t end = SIZE_MAX) const;
  [[nodiscard]] std::size_t position() const { return at_; }
  /// Returns the token, for messages.
  [[nodiscard]] std::string found() const;
  [[noreturn]] void fail(const std::string& problem) const { fail_template({name_, now().line}, problem); }
  [[noreturn]] void refuse(const std::string& construct) const { refuse_template({name_, now().line}, construct); }
  bool take();
  bool take_symbol(std::string_view text) { return at_symbol(text) && take(); }
  bool take_name(std::string_view text) { return at_name(text) && take(); }
  void expect_symbol(std::string_view text);
  std::string expect_name();
  static std::vector<Expression> list_of(Expression first);
  static std::vector<Expression> list_of(Expression first, Expression second);

 private:
  void count_part();
  Expression make(Expression::Kind kind, std::string text = "", std::vector<Expression> parts = {});
  template <class Parse>
  Expression chain(Expression::Kind kind, std::initializer_list<std::string_view> symbols, Parse parse);
  template <class Parse>
  Expression parse_tuple(Parse parse, Token::Kind end, std::string_view symbol);
  Expression parse_not();
  Expression parse_comparison();
  Expression parse_sum();
  Expression parse_unary(bool with_filters);
  Expression parse_primary();
  Expression parse_string();
  Expression parse_number();
  Expression parse_name();
  Expression parse_items(Expression::Kind kind, std::string_view end);
  Expression parse_postfix(Expression value);
  Expression parse_subscript(Expression value);
  Expression parse_call(Expression callee);
  Expression parse_filters(Expression value);
  void parse_test_argument(Expression& test);

  std::vector<Token> tokens_;  // the last is the end
  std::string_view name_;
  std::size_t at_ = 0;
  int parts_ = 0;
};

}  // namespace maestro
