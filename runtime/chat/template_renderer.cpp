// SPDX-License-Identifier: Apache-2.0
// Statements of a chat template, its scopes and its macros.
#include "runtime/chat/template_renderer.hpp"

#include "runtime/chat/template_levels.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;

namespace {

constexpr std::size_t longest_output = std::size_t{64} << 20;  // bytes
// Of all values that a rendering makes. A conversation needs a small part of it; loops inside of loops, or texts that
// double, reach it within seconds.
constexpr std::size_t most_work = std::size_t{512} << 20;

}  // namespace

TemplateRenderer::TemplateRenderer(std::string_view file, TemplateVariables variables,
                                   std::optional<std::chrono::sys_seconds> date)
    : file_(file), globals_{{}, date}, scope_(&scopes_.emplace_back()) {
  scope_->variables = std::move(variables);
}

RenderedChat TemplateRenderer::render(const TemplateTree& tree, bool ranges) {
  run(tree.body);
  if (ranges && lost_) {
    fail_template(place(1),
                  "a {% generation %} block writes to a text that the template goes on to use as a value, so "
                  "that its place in the conversation is not known");
  }
  return {std::move(out_), std::move(generated_)};
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

void TemplateRenderer::write(std::string_view text, int line) {
  if (out_.size() + text.size() > longest_output) fail_template(place(line), "the text is longer than 64 MiB");
  out_ += text;
}

/// A macro that is all of an output writes to where the output goes.
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
    open_scope();
    body_ = captured([&] { run(statement.bodies[0]); });
    close_scope();
  }
  assign(statement.expressions[0], evaluate(statement.expressions[1]));
}

void TemplateRenderer::filter(const Statement& statement) {
  open_scope();
  body_ = captured([&] { run(statement.bodies[0]); });
  output(statement.expressions[0]);
  close_scope();
}

TemplateRenderer::Flow TemplateRenderer::with(const Statement& statement) {
  Values values;
  for (std::size_t i = 1; i < statement.expressions.size(); i += 2)
    values.push_back(evaluate(statement.expressions[i]));
  open_scope();
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.expressions[2 * i], values[i]);
  const Flow flow = run(statement.bodies[0]);
  close_scope();
  return flow;
}

TemplateRenderer::Flow TemplateRenderer::generate(const Statement& statement) {
  const std::size_t begin = out_.size();
  open_scope();
  run(statement.bodies[0]);
  close_scope();
  if (out_.size() == begin) return Flow::next;
  while (!generated_.empty() && generated_.back().begin >= begin) generated_.pop_back();  // blocks inside of it
  if (!generated_.empty() && generated_.back().end >= begin) {
    generated_.back().end = out_.size();
  } else {
    generated_.push_back({begin, out_.size()});
  }
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
    open_scope();
    assign(statement.expressions[0], state.items[state.at]);
    scope_->variables.insert_or_assign("loop", Value(&state));
    state.scope = scope_->outer;
    if (statement.recursive) state.scope->kept = true;
    const Flow flow = run(statement.bodies[0]);
    close_scope();
    if (flow == Flow::leave) break;
  }
  if (!state.items.empty() || statement.bodies.size() < 2) return;
  open_scope();
  run(statement.bodies[1]);
  close_scope();
}

Values TemplateRenderer::kept_elements(const Statement& statement, Values elements) {
  Values kept;
  for (Value& element : elements) {
    spend(work_of_template_step, statement.line);
    open_scope();
    assign(statement.expressions[0], element);
    if (is_true(evaluate(statement.expressions[2]))) kept.push_back(std::move(element));
    close_scope();
  }
  return kept;
}

void TemplateRenderer::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::name) {
    scope_->variables.insert_or_assign(target.text, value);
    return;
  }
  const TemplatePlace here = place(target.line);
  if (target.kind == Expression::Kind::attribute) {
    const std::string& name = target.parts[0].text;
    const Value* space = find(name);
    if (space == nullptr || !space->is(Value::Kind::object) || space->object()->kind != TemplateObject::Kind::space) {
      fail_template(here, printable(name) + " is not a namespace");
    }
    if (target.text.starts_with('_')) fail_template(here, "a namespace has no attribute that begins with _");
    return space->object()->attributes.set(target.text, value);
  }
  const Values values = elements_of(value, here);
  if (values.size() != target.parts.size()) {
    fail_template(here,
                  std::to_string(values.size()) + " values for " + std::to_string(target.parts.size()) + " names");
  }
  for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
}

// ---- scopes and captured text ----

void TemplateRenderer::open_scope() {
  TemplateScope* made = nullptr;
  if (free_.empty()) {
    made = &scopes_.emplace_back();
  } else {
    made = free_.back();
    free_.pop_back();
  }
  made->outer = scope_;
  scope_ = made;
}

void TemplateRenderer::close_scope() {
  TemplateScope* closed = scope_;
  scope_ = closed->outer;
  if (closed->kept) return;
  closed->variables.clear();
  free_.push_back(closed);
}

Value* TemplateRenderer::find(const std::string& name) {
  for (TemplateScope* scope = scope_; scope != nullptr; scope = scope->outer) {
    if (const auto found = scope->variables.find(name); found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace maestro
