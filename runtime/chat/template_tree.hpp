// SPDX-License-Identifier: Apache-2.0
// A parsed chat template. Not a public header: it names the JSON library.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/template_lexer.hpp"

namespace maestro {

struct TemplateExpression {
  enum class Kind : std::uint8_t {
    literal,    ///< value
    name,       ///< text
    list,       ///< parts
    mapping,    ///< parts: key, value, key, value, ...
    item,       ///< parts: container, key; as x[key] and x.key
    slice,      ///< parts: container, begin, end, step; each of the last three a literal null where it is left out
    call,       ///< of function `text`, or with a first part that `text` is a method of (method = true); arguments
    filter,     ///< `text`; parts: operand, arguments
    test,       ///< `text`; parts: operand, arguments
    unary,      ///< `text`: not, -, +
    binary,     ///< `text`: the operator
    condition,  ///< parts: condition, value if so, value otherwise
  };
  Kind kind = Kind::literal;
  int line = 0;
  std::string text;
  nlohmann::ordered_json value;
  std::vector<TemplateExpression> parts;
  std::vector<std::string> names;  ///< of the last parts: arguments that are given by name
  bool method = false;
};

struct TemplateStatement {
  enum class Kind : std::uint8_t {
    text,        ///< text
    output,      ///< expressions[0]
    set,         ///< names: variable, or namespace and attribute; expressions[0], or the text of bodies[0]
    loop,        ///< names; expressions[0] and the condition expressions[1], if any; bodies: loop, otherwise
    choice,      ///< bodies[i] if expressions[i]; a last body: otherwise
    macro,       ///< names: macro, parameters; expressions: defaults of the last parameters; bodies[0]
    leave,       ///< break
    proceed,     ///< continue
    generation,  ///< bodies[0]: marks the assistant's part for training
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;
  std::vector<std::string> names;
  std::vector<TemplateExpression> expressions;
  std::vector<std::vector<TemplateStatement>> bodies;
};

/// A template, and what its callers ask about it.
struct TemplateTree {
  std::vector<TemplateStatement> body;
  bool uses_generation = false;
  bool uses_date = false;
};

/// Parses a template; `name` is that of its file. Throws JobError, and refuses by name the constructs of Jinja that
/// are not supported.
[[nodiscard]] TemplateTree parse_template(std::string_view source, std::string_view name);

}  // namespace maestro
