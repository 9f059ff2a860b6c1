// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "runtime/chat/template_expressions.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

using Statement = TemplateStatement;
using Body = std::vector<Statement>;
using Token = TemplateToken;

constexpr int most_levels = 64;  // nesting of statements

class Parser : private TemplateExpressionParser {
 public:
  Parser(std::string_view source, std::string_view name)
      : TemplateExpressionParser(lex_template(source, name), name), name_(name) {}

  TemplateTree run() {
    TemplateTree tree;
    tree.uses_date = names("strftime_now");
    tree.body = parse_body({});
    if (!at(Token::Kind::end)) fail("{% " + found() + " %} is without its beginning");
    tree.uses_generation = uses_generation_;
    return tree;
  }

 private:
  void end_tag() {
    if (!at(Token::Kind::end_of_tag)) fail("a tag continues with " + found());
    take();
  }
  /// Parses statements up to a tag with one of these names, which it does not consume.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    if (++levels_ > most_levels) fail("statements are nested deeper than 64 levels");
    Body body;
    while (!at(Token::Kind::end)) {
      const Token& token = now();
      if (token.kind == Token::Kind::tag) {
        take();
        if (at(Token::Kind::name) && std::ranges::find(ends, now().text) != ends.end()) break;
        if (at(Token::Kind::name) && is_end()) break;
        parse_tag(body);
        continue;
      }
      Statement statement;
      statement.line = token.line;
      take();
      if (token.kind == Token::Kind::text) {
        statement.text = token.text;
      } else {
        statement.kind = Statement::Kind::output;
        statement.expressions = list_of(parse_whole());
        end_tag();
      }
      body.push_back(std::move(statement));
    }
    --levels_;
    return body;
  }
  /// Returns whether a tag ends or parts another: an error if parse_body() did not wait for it.
  [[nodiscard]] bool is_end() const {
    return now().text.starts_with("end") || now().text == "else" || now().text == "elif";
  }
  void expect_end(const char* name, int line) {
    if (at(Token::Kind::end)) fail_template({name_, line}, "a tag lacks {% " + std::string(name) + " %}");
    if (!take_name(name)) fail("{% " + found() + " %} is found, but {% " + std::string(name) + " %} is missing");
    end_tag();
  }

  void parse_tag(Body& body) {
    Statement made;
    made.line = now().line;
    const std::string name = expect_name();
    if (name == "for") {
      parse_loop(made);
    } else if (name == "if") {
      parse_choice(made);
    } else if (name == "set") {
      parse_set(made);
    } else if (name == "macro") {
      parse_macro(made);
    } else if (name == "call") {
      parse_call_block(made);
    } else if (name == "filter") {
      made.kind = Statement::Kind::filter;
      made.expressions.push_back(parse_body_filters(true));
      end_tag();
      parse_only_body(made, "endfilter");
    } else if (name == "with") {
      parse_with(made);
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("{% " + name + " %} is outside of a loop");
      made.kind = name == "break" ? Statement::Kind::leave : Statement::Kind::proceed;
      end_tag();
    } else if (name == "generation") {
      made.kind = Statement::Kind::generation;
      uses_generation_ = true;
      end_tag();
      parse_only_body(made, "endgeneration");
    } else {
      refuse_template({name_, made.line}, "{% " + printable(name) + " %}");
    }
    body.push_back(std::move(made));
  }

  /// Parses a body that is not a part of the loop around it.
  void parse_only_body(Statement& made, const char* end) {
    const int loops = std::exchange(loops_, 0);
    made.bodies.push_back(parse_body({end}));
    loops_ = loops;
    expect_end(end, made.line);
  }

  void parse_loop(Statement& made) {
    made.kind = Statement::Kind::loop;
    made.expressions.push_back(parse_target());
    if (!take_name("in")) fail("\"in\" is missing before " + found());
    made.expressions.push_back(parse_listed());  // an "if" after it belongs to the loop
    if (take_name("if")) made.expressions.push_back(parse_condition());
    made.recursive = take_name("recursive");
    end_tag();
    ++loops_;
    made.bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    if (take_name("else")) {
      end_tag();
      made.bodies.push_back(parse_body({"endfor"}));
    }
    expect_end("endfor", made.line);
  }

  void parse_choice(Statement& made) {
    made.kind = Statement::Kind::choice;
    do {
      made.expressions.push_back(parse_condition());
      end_tag();
      made.bodies.push_back(parse_body({"elif", "else", "endif"}));
    } while (take_name("elif"));
    if (take_name("else")) {
      end_tag();
      made.bodies.push_back(parse_body({"endif"}));
    }
    expect_end("endif", made.line);
  }

  void parse_parameters(Statement& made) {
    bool first = true;
    while (!take_symbol(")")) {
      if (!first && !take_symbol(",")) fail("\",\" is missing before " + found());
      if (!first && take_symbol(")")) break;
      first = false;
      made.names.push_back(expect_name());
      if (take_symbol("=")) {
        defaults_.push_back(parse_condition());
      } else if (!defaults_.empty()) {
        fail("a parameter without a default follows one with a default");
      }
    }
    std::ranges::move(defaults_, std::back_inserter(made.expressions));
    defaults_.clear();
  }
  /// Parses a macro's or a caller's body.
  void parse_called(Statement& made, const char* end) {
    const std::size_t begin = position();
    parse_only_body(made, end);
    made.varargs = names("varargs", begin, position());
    made.kwargs = names("kwargs", begin, position());
    made.caller = names("caller", begin, position());
  }
  void parse_macro(Statement& made) {
    made.kind = Statement::Kind::macro;
    made.names.push_back(expect_name());
    if (!take_symbol("(")) fail("the parameters of a macro are missing before " + found());
    parse_parameters(made);
    end_tag();
    parse_called(made, "endmacro");
  }
  void parse_call_block(Statement& made) {
    made.kind = Statement::Kind::call;
    made.names.push_back("caller");
    Statement parameters;
    if (take_symbol("(")) parse_parameters(parameters);
    made.expressions.push_back(parse_condition());
    if (made.expressions[0].kind != TemplateExpression::Kind::call) fail("{% call %} needs a call");
    std::ranges::move(parameters.names, std::back_inserter(made.names));
    std::ranges::move(parameters.expressions, std::back_inserter(made.expressions));
    end_tag();
    parse_called(made, "endcall");
  }

  void parse_with(Statement& made) {
    made.kind = Statement::Kind::with;
    while (!at(Token::Kind::end_of_tag)) {
      if (!made.expressions.empty()) expect_symbol(",");
      made.expressions.push_back(parse_target());
      expect_symbol("=");
      made.expressions.push_back(parse_condition());
    }
    end_tag();
    made.bodies.push_back(parse_body({"endwith"}));
    expect_end("endwith", made.line);
  }

  void parse_set(Statement& made) {
    made.kind = Statement::Kind::set;
    made.expressions.push_back(parse_target());
    if (take_symbol("=")) {
      made.expressions.push_back(parse_whole());
      return end_tag();
    }
    made.expressions.push_back(parse_body_filters(false));
    end_tag();
    parse_only_body(made, "endset");
  }

  std::string_view name_;
  int levels_ = 0;
  int loops_ = 0;
  std::vector<TemplateExpression> defaults_;  // defaults of the parameters being read
  bool uses_generation_ = false;
};

}  // namespace

TemplateTree parse_template(std::string_view source, std::string_view name) {
  return Parser(source, name).run();
}

}  // namespace maestro
