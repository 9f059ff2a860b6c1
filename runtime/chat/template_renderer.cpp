// SPDX-License-Identifier: Apache-2.0
// Statements and calls of a chat template.
#include "runtime/chat/template_renderer.hpp"

#include <algorithm>

#include "runtime/chat/template_levels.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;

namespace {

// Limit for all values that a rendering makes. A conversation needs a small part of it; loops inside loops, or texts
// that double, reach it within seconds.
constexpr std::size_t most_work = std::size_t{512} << 20;

constexpr int most_calls = 200;

}  // namespace

TemplateRenderer::TemplateRenderer(std::string_view file, TemplateVariables variables,
                                   std::optional<std::chrono::sys_seconds> date)
    : file_(file), globals_{{}, date}, scopes_(std::move(variables)) {}

RenderedChat TemplateRenderer::render(const TemplateTree& tree, bool ranges) {
  run(tree.body);
  if (ranges && output_.has_lost_ranges()) {
    fail_template(place(1),
                  "a {% generation %} block writes to a text that the template then uses as a value, so that "
                  "its place in the conversation is unknown");
  }
  return output_.take();
}

void TemplateRenderer::spend(std::size_t work, int line) {
  work_ += work;
  if (work_ > most_work) fail_template(place(line), "it loops too often, or makes values that are too large");
}

// ---- statements ----

TemplateRenderer::Flow TemplateRenderer::run(const Body& body) {
  for (const Statement& statement : body) {
    if (const Flow flow = run(statement); flow != Flow::next) return flow;
  }
  return Flow::next;
}

TemplateRenderer::Flow TemplateRenderer::run(const Statement& statement) {
  const TemplateLevel level(levels_, place(statement.line));
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.text, statement.line);
      break;
    case Statement::Kind::output:
      output(statement.expressions[0]);
      break;
    case Statement::Kind::set:
      set(statement);
      break;
    case Statement::Kind::filter:
      filter(statement);
      break;
    case Statement::Kind::loop:
      loop(statement);
      break;
    case Statement::Kind::choice:
      return choose(statement);
    case Statement::Kind::macro:
      define_macro(statement);
      break;
    case Statement::Kind::call:
      call_with_body(statement);
      break;
    case Statement::Kind::with:
      return with(statement);
    case Statement::Kind::generation:
      return generate(statement);
    case Statement::Kind::leave:
      return Flow::leave;
    case Statement::Kind::proceed:
      return Flow::proceed;
  }
  return Flow::next;
}

/// Writes an expression. A macro that is a complete output writes directly to the output.
void TemplateRenderer::output(const Expression& expression) {
  if (expression.kind == Expression::Kind::call && expression.parts[0].kind == Expression::Kind::name) {
    const Value callee = evaluate(expression.parts[0]);
    TemplateArguments arguments = arguments_of(expression, 1);
    if (writes(callee, arguments, expression.line)) return;
    return write(printed(call_value(callee, std::move(arguments), expression), place(expression.line)),
                 expression.line);
  }
  const Value value = evaluate(expression);
  if (value.is_text()) return write(value.text(), expression.line);
  write(printed(value, place(expression.line)), expression.line);
}

TemplateRenderer::Flow TemplateRenderer::choose(const Statement& statement) {
  for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
    const bool otherwise = i == statement.expressions.size();
    if (otherwise || is_true(evaluate(statement.expressions[i]))) return run(statement.bodies[i]);
  }
  return Flow::next;
}

void TemplateRenderer::set(const Statement& statement) {
  if (!statement.bodies.empty()) {
    scopes_.open();
    body_ = output_.captured([&] { run(statement.bodies[0]); });
    scopes_.close();
  }
  assign(statement.expressions[0], evaluate(statement.expressions[1]));
}

void TemplateRenderer::filter(const Statement& statement) {
  scopes_.open();
  body_ = output_.captured([&] { run(statement.bodies[0]); });
  output(statement.expressions[0]);
  scopes_.close();
}

TemplateRenderer::Flow TemplateRenderer::with(const Statement& statement) {
  Values values;
  for (std::size_t i = 1; i < statement.expressions.size(); i += 2)
    values.push_back(evaluate(statement.expressions[i]));
  scopes_.open();
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.expressions[2 * i], values[i]);
  const Flow flow = run(statement.bodies[0]);
  scopes_.close();
  return flow;
}

TemplateRenderer::Flow TemplateRenderer::generate(const Statement& statement) {
  const std::size_t begin = output_.size();
  scopes_.open();
  run(statement.bodies[0]);
  scopes_.close();
  output_.note_generated(begin);
  return Flow::next;
}

void TemplateRenderer::loop(const Statement& statement) {
  loop_over(statement, elements_of(evaluate(statement.expressions[1]), place(statement.line)), 0);
}

void TemplateRenderer::loop_over(const Statement& statement, Values elements, int depth) {
  if (statement.expressions.size() > 2) elements = kept_elements(statement, std::move(elements));
  TemplateObject& state =
      globals_.objects.emplace_back(TemplateObject{.kind = TemplateObject::Kind::loop,
                                                   .statement = statement.recursive ? &statement : nullptr,
                                                   .items = std::move(elements),
                                                   .depth = depth});
  spend(work_of_template_step + sizeof(Value) * state.items.size(), statement.line);
  for (; state.at < state.items.size(); ++state.at) {
    spend(work_of_template_step, statement.line);
    scopes_.open();
    assign(statement.expressions[0], state.items[state.at]);
    scopes_.set("loop", Value(&state));
    state.scope = scopes_.innermost()->outer;
    if (statement.recursive) state.scope->kept = true;
    const Flow flow = run(statement.bodies[0]);
    scopes_.close();
    if (flow == Flow::leave) break;
  }
  if (!state.items.empty() || statement.bodies.size() < 2) return;
  scopes_.open();
  run(statement.bodies[1]);
  scopes_.close();
}

Values TemplateRenderer::kept_elements(const Statement& statement, Values elements) {
  Values kept;
  for (Value& element : elements) {
    spend(work_of_template_step, statement.line);
    scopes_.open();
    assign(statement.expressions[0], element);
    if (is_true(evaluate(statement.expressions[2]))) kept.push_back(std::move(element));
    scopes_.close();
  }
  return kept;
}

void TemplateRenderer::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::name) {
    scopes_.set(target.text, value);
    return;
  }
  const TemplatePlace here = place(target.line);
  if (target.kind == Expression::Kind::attribute) {
    const std::string& name = target.parts[0].text;
    const Value* space = scopes_.find(name);
    if (space == nullptr || !space->is(Value::Kind::object) || space->object()->kind != TemplateObject::Kind::space) {
      fail_template(here, printable(name) + " is not a namespace");
    }
    if (target.text.starts_with('_')) fail_template(here, "a namespace takes no attribute that begins with _");
    return space->object()->attributes.set(target.text, value);
  }
  const Values values = elements_of(value, here);
  if (values.size() != target.parts.size()) {
    fail_template(here,
                  std::to_string(values.size()) + " values for " + std::to_string(target.parts.size()) + " names");
  }
  for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
}

// ---- calls ----

void TemplateRenderer::define_macro(const Statement& statement) {
  spend(work_of_template_step, statement.line);
  scopes_.keep();
  TemplateObject& made = globals_.objects.emplace_back(
      TemplateObject{.kind = TemplateObject::Kind::macro, .statement = &statement, .scope = scopes_.innermost()});
  scopes_.set(statement.names[0], Value(&made));
}

void TemplateRenderer::call_with_body(const Statement& statement) {
  const Expression& expression = statement.expressions[0];
  const Value callee = evaluate(expression.parts[0]);
  TemplateArguments arguments = arguments_of(expression, 1);
  scopes_.open();
  define_macro(statement);
  arguments.named.emplace_back("caller", *scopes_.find("caller"));
  scopes_.variables().clear();  // the body sees the caller of the macro that it is written in
  if (!writes(callee, arguments, statement.line)) {
    write(printed(call_value(callee, std::move(arguments), expression), place(statement.line)), statement.line);
  }
  scopes_.close();
}

/// Calls a macro, which sees its parameters and the scope that it is written in, not its caller's scope.
void TemplateRenderer::call_macro(const TemplateObject& macro, TemplateArguments arguments, int line) {
  if (++calls_ > most_calls) fail_template(place(line), "macros call each other more than 200 deep");
  TemplateScope* caller = scopes_.enter(macro.scope);
  scopes_.open();
  bind(*macro.statement, std::move(arguments), line);
  run(macro.statement->bodies[0]);
  scopes_.close();
  scopes_.enter(caller);
  --calls_;
}

void TemplateRenderer::bind(const Statement& macro, TemplateArguments arguments, int line) {
  const std::string title = "the macro " + macro.names[0];
  const bool block = macro.kind == Statement::Kind::call;
  const std::size_t count = macro.names.size() - 1, shift = block ? 1 : 0;
  const std::size_t required = count - (macro.expressions.size() - shift);
  // Callers use names that are given.
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
  for (std::size_t i = 0; i < count; ++i) scopes_.set(macro.names[i + 1], parameter(i));
  if (macro.caller && !scopes_.variables().contains("caller") && !block) {
    const bool given = arguments.find("caller") != nullptr;
    scopes_.set("caller", given ? take("caller") : Value::undefined());
  }
  if (macro.kwargs) {
    TemplateMapping rest;
    for (auto& [name, value] : arguments.named) rest.set(name, std::move(value));
    scopes_.variables()["kwargs"] = std::move(rest);
  } else if (!arguments.named.empty()) {
    fail_template(place(line), title + " has no parameter " + printable(arguments.named[0].first));
  }
  Values& values = arguments.values;
  if (values.size() > count && !macro.varargs) fail_template(place(line), title + " has too many arguments");
  if (macro.varargs) {
    const auto first = static_cast<std::ptrdiff_t>(std::min(count, values.size()));
    scopes_.variables()["varargs"] = Value::tuple({values.begin() + first, values.end()});
  }
}

void TemplateRenderer::loop_again(const TemplateObject& loop, const TemplateArguments& arguments, int line) {
  if (arguments.values.size() != 1 || !arguments.named.empty()) fail_template(place(line), "a loop takes one list");
  if (++calls_ > most_calls) fail_template(place(line), "loops call each other more than 200 deep");
  TemplateScope* caller = scopes_.enter(loop.scope);
  loop_over(*loop.statement, elements_of(arguments.values[0], place(line)), loop.depth + 1);
  scopes_.enter(caller);
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
  const Value text = output_.captured([&] { wrote = writes(callee, arguments, expression.line); });
  if (wrote) return text;
  const std::string& name = expression.parts[0].text;
  if (name == "lipsum" || name == "strftime_now") refuse_template(here, "the function " + name);
  if (callee.is_undefined()) fail_template(here, "\"" + printable(name) + "\" is called, but it is not defined");
  fail_template(here, kind_of(callee) + " is called, but it is not a function");
}

}  // namespace maestro
