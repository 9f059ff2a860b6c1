// SPDX-License-Identifier: Apache-2.0
// The expressions of a chat template, from its tokens. Not a public header.
#pragma once

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

  /// An expression up to the end of a tag, with all operators.
  Expression parse_whole();
  Expression parse_condition();
  /// Without `a if b else c`.
  Expression parse_or();

  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] bool at(Token::Kind kind) const { return now().kind == kind; }
  [[nodiscard]] bool at_symbol(std::string_view text) const { return at(Token::Kind::symbol) && now().text == text; }
  [[nodiscard]] bool at_name(std::string_view text) const { return at(Token::Kind::name) && now().text == text; }
  /// Returns whether a tag has this name.
  [[nodiscard]] bool names(std::string_view text) const;
  /// The token, for messages.
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
  Expression chain(std::initializer_list<std::string_view> symbols, Parse parse);
  Expression parse_not();
  Expression parse_comparison();
  Expression parse_sum();
  Expression parse_unary();
  Expression parse_primary();
  Expression parse_string();
  Expression parse_number();
  Expression parse_name();
  Expression parse_items(Expression::Kind kind, std::string_view end);
  Expression parse_postfix(Expression value);
  Expression parse_subscript(Expression value);
  Expression parse_call(Expression callee);
  void parse_arguments(Expression& made);
  Expression parse_filters(Expression value);
  void parse_test_argument(Expression& test);

  std::vector<Token> tokens_;  // the last is the end
  std::string_view name_;
  std::size_t at_ = 0;
  int parts_ = 0;
};

}  // namespace maestro
