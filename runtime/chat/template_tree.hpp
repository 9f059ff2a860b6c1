// SPDX-License-Identifier: Apache-2.0
// A parsed chat template. Not a public header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/template_lexer.hpp"
#include "runtime/chat/template_values.hpp"

namespace maestro {

struct TemplateExpression {
  enum class Kind : std::uint8_t {
    literal,     ///< value
    name,        ///< text
    list,        ///< parts
    tuple,       ///< parts
    mapping,     ///< parts: key, value, key, value, ...
    item,        ///< x[key]; parts: container, key
    attribute,   ///< x.text; parts: container
    slice,       ///< parts: container, begin, end, step; each of the last three a literal none if it is left out
    call,        ///< parts: the callee, arguments
    filter,      ///< `text`; parts: operand, arguments
    test,        ///< `text`; parts: operand, arguments
    unary,       ///< `text`: not, -, +
    logical,     ///< `text`: and, or
    binary,      ///< `text`: another operator
    comparison,  ///< parts; names: the operators between them
    condition,   ///< parts: condition, value if so, value otherwise
    body,        ///< the text of the statement's body, for its filters
  };
  Kind kind = Kind::literal;
  int line = 0;
  std::string text = {};
  TemplateValue value = {};
  std::vector<TemplateExpression> parts = {};
  std::vector<std::string> names = {};  ///< arguments by name, the last parts; "*", "**": lists and mappings of them
};

struct TemplateStatement {
  enum class Kind : std::uint8_t {
    text,     ///< text
    output,   ///< expressions[0]
    set,      ///< expressions: target, value; bodies[0], if any, is the body whose text the value is made of
    filter,   ///< expressions[0] with the text of bodies[0]
    loop,     ///< expressions: target, list, and the condition, if any; bodies: loop, otherwise
    choice,   ///< bodies[i] if expressions[i]; a last body: otherwise
    macro,    ///< names: macro, parameters; expressions: defaults of the last parameters; bodies[0]
    call,     ///< expressions[0] is called with bodies[0] as its caller; names, and the other expressions: as a macro
    with,     ///< expressions: target, value, target, value, ...; bodies[0]
    leave,    ///< break
    proceed,  ///< continue
    generation,  ///< bodies[0]: marks the assistant's part for training
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<TemplateExpression> expressions = {};
  std::vector<std::vector<TemplateStatement>> bodies = {};
  bool recursive = false;  ///< loop: recursive
  bool varargs = false;    ///< macro: its body names varargs, kwargs, caller
  bool kwargs = false;
  bool caller = false;
};

/// A template, and the answers to questions about it.
struct TemplateTree {
  std::vector<TemplateStatement> body = {};
  bool uses_generation = false;
  bool uses_date = false;
};

/// Parses a template; `name` is its file's name. Throws JobError, and refuses unsupported Jinja constructs by name.
[[nodiscard]] TemplateTree parse_template(std::string_view source, std::string_view name);

}  // namespace maestro
