// SPDX-License-Identifier: Apache-2.0
// Expressions of a chat template.
#include "runtime/chat/template_levels.hpp"
#include "runtime/chat/template_renderer.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;

namespace {

constexpr std::size_t work_of_expression = 128;

bool makes_a_value(TemplateExpression::Kind kind) {
  using Kind = TemplateExpression::Kind;
  return kind == Kind::call || kind == Kind::filter || kind == Kind::binary || kind == Kind::list ||
         kind == Kind::tuple || kind == Kind::mapping || kind == Kind::slice;
}

/// Returns the least work of a call: texts are read, lists are traversed.
std::size_t size_of(const Value& value) {
  if (value.is_text()) return value.text().size();
  if (value.has_elements()) return sizeof(Value) * value.elements().size();
  return value.is_mapping() ? 2 * sizeof(Value) * value.mapping().pairs().size() : 0;
}

}  // namespace

Value TemplateRenderer::evaluate(const Expression& expression) {
  const TemplateLevel level(levels_, place(expression.line));
  Value value = made_by(expression);
  if (value.depth() > most_template_levels) {
    fail_template(place(expression.line), "a value is nested deeper than 64 levels");
  }
  spend(work_of_expression + (makes_a_value(expression.kind) ? size_of(value) : 0), expression.line);
  return value;
}

Value TemplateRenderer::made_by(const Expression& expression) {
  const std::vector<Expression>& parts = expression.parts;
  switch (expression.kind) {
    case Expression::Kind::literal:
      return expression.value;
    case Expression::Kind::name:
      return name(expression);
    case Expression::Kind::list:
      return Value::list(values_of(expression));
    case Expression::Kind::tuple:
      return Value::tuple(values_of(expression));
    case Expression::Kind::mapping:
      return mapping(expression);
    case Expression::Kind::item:
      return item(expression);
    case Expression::Kind::attribute:
      return attribute_of(evaluate(parts[0]), expression.text, place(expression.line));
    case Expression::Kind::slice:
      return slice_of(values_of(expression), place(expression.line));
    case Expression::Kind::call:
      return call(expression);
    case Expression::Kind::filter:
      return filtered(expression.text, arguments_of(expression, 0), place(expression.line));
    case Expression::Kind::test:
      return tested(expression.text, arguments_of(expression, 0), place(expression.line));
    case Expression::Kind::unary:
      return unary(expression);
    case Expression::Kind::logical: {
      Value left = evaluate(parts[0]);
      return is_true(left) == (expression.text == "or") ? left : evaluate(parts[1]);
    }
    case Expression::Kind::binary: {
      const Value left = evaluate(parts[0]);
      return binary_value(expression.text, left, evaluate(parts[1]), place(expression.line));
    }
    case Expression::Kind::comparison:
      return comparison(expression);
    case Expression::Kind::condition:
      if (is_true(evaluate(parts[0]))) return evaluate(parts[1]);
      return parts.size() > 2 ? evaluate(parts[2]) : Value::undefined();
    case Expression::Kind::body:
      return body_;
  }
  return Value::undefined();
}

Value TemplateRenderer::name(const Expression& expression) {
  if (const Value* found = scopes_.find(expression.text)) return *found;
  if (is_function(expression.text, globals_)) return Value::method(Value::undefined(), expression.text);
  return Value::undefined();
}

Value TemplateRenderer::item(const Expression& expression) {
  const Value container = evaluate(expression.parts[0]);
  return item_of(container, evaluate(expression.parts[1]), place(expression.line));
}

/// Evaluates a < b < c as a < b and b < c.
Value TemplateRenderer::comparison(const Expression& expression) {
  Value left = evaluate(expression.parts[0]);
  for (std::size_t i = 0; i < expression.names.size(); ++i) {
    Value right = evaluate(expression.parts[i + 1]);
    spend(std::max(size_of(left), size_of(right)), expression.line);
    Value holds = compared(expression.names[i], left, right, place(expression.line));
    if (i + 1 == expression.names.size() || !is_true(holds)) return holds;
    left = std::move(right);
  }
  return left;
}

Value TemplateRenderer::unary(const Expression& expression) {
  const Value value = evaluate(expression.parts[0]);
  if (expression.text == "not") return !is_true(value);
  const TemplatePlace here = place(expression.line);
  if (expression.text == "-") return negated(value, here);
  if (!value.is_number()) fail_template(here, "\"+\" does not take " + kind_of(value));
  return value.is_whole() ? Value(value.whole()) : value;
}

Value TemplateRenderer::mapping(const Expression& expression) {
  TemplateMapping made;
  const Values values = values_of(expression);
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    if (values[i].is(Value::Kind::list) || values[i].is_mapping()) {
      fail_template(place(expression.line), "a key is " + kind_of(values[i]));
    }
    made.set(values[i], values[i + 1]);
  }
  return made;
}

Values TemplateRenderer::values_of(const Expression& expression) {
  Values made;
  for (const Expression& part : expression.parts) made.push_back(evaluate(part));
  return made;
}

TemplateArguments TemplateRenderer::arguments_of(const Expression& expression, std::size_t first) {
  TemplateArguments made;
  const std::size_t unnamed = expression.parts.size() - expression.names.size();
  const TemplatePlace here = place(expression.line);
  for (std::size_t i = first; i < expression.parts.size(); ++i) {
    Value value = evaluate(expression.parts[i]);
    const std::string_view name = i < unnamed ? std::string_view() : std::string_view(expression.names[i - unnamed]);
    if (i < unnamed) {
      made.values.push_back(std::move(value));
    } else if (name == "*") {
      for (Value& each : elements_of(value, here)) made.values.push_back(std::move(each));
    } else if (name == "**") {
      if (!value.is_mapping()) fail_template(here, "\"**\" takes a mapping, not " + kind_of(value));
      for (const auto& [key, each] : value.mapping().pairs()) made.named.emplace_back(printed(key, here), each);
    } else {
      made.named.emplace_back(name, std::move(value));
    }
  }
  return made;
}

}  // namespace maestro
