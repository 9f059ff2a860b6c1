// SPDX-License-Identifier: Apache-2.0
// Calls of a chat template: macros, recursive loops, methods and functions.
#include <algorithm>

#include "runtime/chat/template_renderer.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;

namespace {

constexpr int most_calls = 200;

}  // namespace

void TemplateRenderer::define_macro(const Statement& statement) {
  spend(work_of_template_step, statement.line);
  for (TemplateScope* scope = scope_; scope != nullptr && !scope->kept; scope = scope->outer) scope->kept = true;
  TemplateObject& made = globals_.objects.emplace_back(
      TemplateObject{.kind = TemplateObject::Kind::macro, .statement = &statement, .scope = scope_});
  scope_->variables.insert_or_assign(statement.names[0], Value(&made));
}

void TemplateRenderer::call_with_body(const Statement& statement) {
  const Expression& expression = statement.expressions[0];
  const Value callee = evaluate(expression.parts[0]);
  TemplateArguments arguments = arguments_of(expression, 1);
  open_scope();
  define_macro(statement);
  arguments.named.emplace_back("caller", *find("caller"));
  scope_->variables.clear();  // the body sees the caller of the macro that it is written in
  if (!writes(callee, arguments, statement.line)) {
    write(printed(call_value(callee, std::move(arguments), expression), place(statement.line)), statement.line);
  }
  close_scope();
}

/// A macro sees its parameters and the scope where it is written, not that of its caller.
void TemplateRenderer::call_macro(const TemplateObject& macro, TemplateArguments arguments, int line) {
  if (++calls_ > most_calls) fail_template(place(line), "macros call each other more than 200 deep");
  TemplateScope* caller = std::exchange(scope_, macro.scope);
  open_scope();
  bind(*macro.statement, std::move(arguments), line);
  run(macro.statement->bodies[0]);
  close_scope();
  scope_ = caller;
  --calls_;
}

void TemplateRenderer::bind(const Statement& macro, TemplateArguments arguments, int line) {
  const std::string title = "the macro " + macro.names[0];
  const bool block = macro.kind == Statement::Kind::call;
  const std::size_t count = macro.names.size() - 1, shift = block ? 1 : 0;
  const std::size_t required = count - (macro.expressions.size() - shift);
  // Callers ask for names that are given.
  const auto take = [&](const std::string& name) {
    const auto found = std::ranges::find_if(arguments.named, [&](const auto& each) { return each.first == name; });
    const Value value = found->second;
    arguments.named.erase(found);
    return value;
  };
  const auto parameter = [&](std::size_t i) {
    if (i < arguments.values.size()) return arguments.values[i];
    if (arguments.find(macro.names[i + 1]) != nullptr) return take(macro.names[i + 1]);
    return i >= required ? evaluate(macro.expressions[i - required + shift]) : Value::undefined();
  };
  for (std::size_t i = 0; i < count; ++i) scope_->variables.insert_or_assign(macro.names[i + 1], parameter(i));
  if (macro.caller && !scope_->variables.contains("caller") && !block) {
    const bool given = arguments.find("caller") != nullptr;
    scope_->variables.insert_or_assign("caller", given ? take("caller") : Value::undefined());
  }
  if (macro.kwargs) {
    TemplateMapping rest;
    for (auto& [name, value] : arguments.named) rest.set(name, std::move(value));
    scope_->variables["kwargs"] = std::move(rest);
  } else if (!arguments.named.empty()) {
    fail_template(place(line), title + " has no parameter " + printable(arguments.named[0].first));
  }
  Values& values = arguments.values;
  if (values.size() > count && !macro.varargs) fail_template(place(line), title + " has too many arguments");
  if (macro.varargs) {
    const auto first = static_cast<std::ptrdiff_t>(std::min(count, values.size()));
    scope_->variables["varargs"] = Value::tuple({values.begin() + first, values.end()});
  }
}

void TemplateRenderer::loop_again(const TemplateObject& loop, const TemplateArguments& arguments, int line) {
  if (arguments.values.size() != 1 || !arguments.named.empty()) fail_template(place(line), "a loop takes one list");
  if (++calls_ > most_calls) fail_template(place(line), "loops call each other more than 200 deep");
  TemplateScope* caller = std::exchange(scope_, loop.scope);
  loop_over(*loop.statement, elements_of(arguments.values[0], place(line)), loop.depth + 1);
  scope_ = caller;
  --calls_;
}

bool TemplateRenderer::writes(const Value& callee, const TemplateArguments& arguments, int line) {
  if (!callee.is(Value::Kind::object)) return false;
  const TemplateObject& object = *callee.object();
  if (object.kind == TemplateObject::Kind::macro) {
    call_macro(object, arguments, line);
    return true;
  }
  if (object.kind != TemplateObject::Kind::loop || object.statement == nullptr) return false;
  loop_again(object, arguments, line);
  return true;
}

Value TemplateRenderer::call(const Expression& expression) {
  const Expression& callee = expression.parts[0];
  if (callee.kind != Expression::Kind::attribute) {
    const Value called = evaluate(callee);
    return call_value(called, arguments_of(expression, 1), expression);
  }
  const Value receiver = evaluate(callee.parts[0]);
  if (!has_method(receiver, callee.text)) {
    const Value called = attribute_of(receiver, callee.text, place(callee.line));
    if (called.is_undefined()) {
      fail_template(place(callee.line),
                    kind_of(receiver) + " has no method \"" + printable(callee.text) + "\" that a template may call");
    }
    return call_value(called, arguments_of(expression, 1), expression);
  }
  TemplateArguments arguments = arguments_of(expression, 1);
  arguments.values.insert(arguments.values.begin(), receiver);
  return method_value(callee.text, arguments, place(expression.line));
}

Value TemplateRenderer::call_value(const Value& callee, TemplateArguments arguments, const Expression& expression) {
  const TemplatePlace here = place(expression.line);
  if (callee.is(Value::Kind::method)) {
    const TemplateMethod& method = callee.method();
    if (method.receiver.is_undefined()) return function_value(method.name, arguments, globals_, here);
    arguments.values.insert(arguments.values.begin(), method.receiver);
    return method_value(method.name, arguments, here);
  }
  if (callee.is(Value::Kind::object) && callee.object()->kind == TemplateObject::Kind::joiner) {
    const bool used = std::exchange(callee.object()->used, true);
    return used ? callee.object()->last : Value("");
  }
  bool wrote = false;
  const Value text = captured([&] { wrote = writes(callee, arguments, expression.line); });
  if (wrote) return text;
  const std::string& name = expression.parts[0].text;
  if (name == "lipsum" || name == "strftime_now") refuse_template(here, "the function " + name);
  if (callee.is_undefined()) fail_template(here, "\"" + printable(name) + "\" is called, and is not defined");
  fail_template(here, kind_of(callee) + " is called, as if it were a function");
}

}  // namespace maestro
