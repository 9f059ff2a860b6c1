// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/chat_template.hpp"

#include <map>

#include "runtime/chat/template_tree.hpp"
#include "runtime/chat/template_values.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

using Value = TemplateValue;
using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Body = std::vector<Statement>;
using Variables = std::map<std::string, Value>;

struct ChatTemplate::Tree : TemplateTree {};

namespace {

constexpr std::size_t longest_output = std::size_t{64} << 20;  // bytes
// Of all values that a rendering makes (weight_of). A conversation needs a small part of it; loops inside of loops, or
// texts that double, reach it within seconds.
constexpr std::size_t most_work = std::size_t{512} << 20;
constexpr int most_calls = 32;
constexpr std::size_t work_of_iteration = 16384;  // of a loop, beside its element

class Renderer {
 public:
  Renderer(std::string_view file, Variables variables) : file_(file), scopes_{std::move(variables)} {}

  RenderedChat render(const Body& body) {
    run(body);
    return {std::move(out_), std::move(generated_)};
  }

 private:
  enum class Flow : std::uint8_t { next, leave, proceed };

  [[nodiscard]] TemplatePlace place(int line) const { return {file_, line}; }
  void spend(std::size_t work, int line) {
    work_ += work;
    if (work_ > most_work) fail_template(place(line), "it loops too often, or makes values that are too large");
  }

  // ---- statements ----

  Flow run(const Body& body) {
    for (const Statement& statement : body) {
      if (const Flow flow = run(statement); flow != Flow::next) return flow;
    }
    return Flow::next;
  }
  Flow run(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::text:
        write(statement.text, statement.line);
        break;
      case Statement::Kind::output:
        write(printed(evaluate(statement.expressions[0]), place(statement.line)), statement.line);
        break;
      case Statement::Kind::set:
        set(statement);
        break;
      case Statement::Kind::loop:
        loop(statement);
        break;
      case Statement::Kind::choice:
        return choose(statement);
      case Statement::Kind::macro:
        macros_[statement.names[0]] = &statement;
        break;
      case Statement::Kind::generation:
        return generate(statement);
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::proceed:
        return Flow::proceed;
    }
    return Flow::next;
  }
  void write(const std::string& text, int line) {
    if (out_.size() + text.size() > longest_output) fail_template(place(line), "the text is longer than 64 MiB");
    out_ += text;
  }
  Flow generate(const Statement& statement) {
    const std::size_t begin = out_.size();
    const Flow flow = run(statement.bodies[0]);
    if (out_.size() == begin) return flow;
    if (!generated_.empty() && generated_.back().end == begin) {
      generated_.back().end = out_.size();
    } else {
      generated_.push_back({begin, out_.size()});
    }
    return flow;
  }
  Flow choose(const Statement& statement) {
    for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
      const bool otherwise = i == statement.expressions.size();
      if (otherwise || is_true(evaluate(statement.expressions[i]))) return run(statement.bodies[i]);
    }
    return Flow::next;
  }

  void set(const Statement& statement) {
    Value value = statement.expressions.empty() ? captured(statement) : evaluate(statement.expressions[0]);
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = std::move(value);
      return;
    }
    Value* space = find(statement.names[0]);
    if (space == nullptr || !space->is_object()) {
      fail_template(place(statement.line), statement.names[0] + " is no namespace");
    }
    (*space)[statement.names[1]] = std::move(value);
  }
  /// The text of the statements in a {% set %}, which have variables of their own.
  Value captured(const Statement& statement) {
    std::string before = std::exchange(out_, "");
    scopes_.emplace_back();
    run(statement.bodies[0]);
    scopes_.pop_back();
    return std::exchange(out_, std::move(before));
  }

  /// The text of a macro's body, which sees the template's variables and its parameters, not those of the caller.
  Value called(const Statement& macro, const TemplateArguments& arguments, int line) {
    if (scopes_.empty() || ++calls_ > most_calls)
      fail_template(place(line), "macros call each other more than 32 deep");
    std::vector<Variables> outer = std::exchange(scopes_, {});
    scopes_.push_back(std::move(outer.front()));
    scopes_.push_back(parameters_of(macro, arguments, line));
    std::string before = std::exchange(out_, "");
    run(macro.bodies[0]);
    outer.front() = std::move(scopes_.front());
    scopes_ = std::move(outer);
    --calls_;
    return std::exchange(out_, std::move(before));
  }
  Variables parameters_of(const Statement& macro, const TemplateArguments& arguments, int line) {
    const std::string title = "the macro " + macro.names[0];
    const std::size_t count = macro.names.size() - 1;
    if (arguments.values.size() > count) fail_template(place(line), title + " has too many arguments");
    Variables made;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& name = macro.names[i + 1];
      const auto named = arguments.named.find(name);
      const std::size_t required = count - macro.expressions.size();
      made[name] = i < arguments.values.size()      ? arguments.values[i]
                   : named != arguments.named.end() ? named->second
                   : i >= required                  ? evaluate(macro.expressions[i - required])
                                                    : undefined_value();
    }
    for (const auto& [name, value] : arguments.named) {
      if (!made.contains(name)) fail_template(place(line), title + " has no parameter " + name);
    }
    return made;
  }

  void loop(const Statement& statement) {
    const std::vector<Value> elements = elements_of_loop(statement);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      spend(work_of_iteration + 3 * weight_of(elements[i], place(statement.line)), statement.line);
      scopes_.emplace_back();
      assign(statement, elements[i]);
      scopes_.back()["loop"] = {{"index", i + 1},
                                {"index0", i},
                                {"revindex", elements.size() - i},
                                {"revindex0", elements.size() - i - 1},
                                {"first", i == 0},
                                {"last", i + 1 == elements.size()},
                                {"length", elements.size()},
                                {"previtem", i > 0 ? elements[i - 1] : undefined_value()},
                                {"nextitem", i + 1 < elements.size() ? elements[i + 1] : undefined_value()}};
      const Flow flow = run(statement.bodies[0]);
      scopes_.pop_back();
      if (flow == Flow::leave) break;
    }
    if (elements.empty() && statement.bodies.size() > 1) run(statement.bodies[1]);
  }
  std::vector<Value> elements_of_loop(const Statement& statement) {
    std::vector<Value> elements = elements_of(evaluate(statement.expressions[0]), place(statement.line));
    if (statement.expressions.size() == 1) return elements;
    std::vector<Value> kept;
    for (Value& element : elements) {
      spend(work_of_iteration, statement.line);
      scopes_.emplace_back();
      assign(statement, element);
      if (is_true(evaluate(statement.expressions[1]))) kept.push_back(std::move(element));
      scopes_.pop_back();
    }
    return kept;
  }
  void assign(const Statement& statement, const Value& element) {
    const std::vector<std::string>& names = statement.names;
    if (names.size() == 1) {
      scopes_.back()[names[0]] = element;
      return;
    }
    if (!element.is_array() || element.size() != names.size()) {
      fail_template(place(statement.line), "an element has not as many values as the loop has names");
    }
    for (std::size_t i = 0; i < names.size(); ++i) scopes_.back()[names[i]] = element[i];
  }

  // ---- expressions ----

  [[nodiscard]] Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  Value evaluate(const Expression& expression) {
    Value value = made_by(expression);
    spend(weight_of(value, place(expression.line)), expression.line);
    return value;
  }
  Value made_by(const Expression& expression) {
    const std::vector<Expression>& parts = expression.parts;
    const TemplatePlace here = place(expression.line);
    switch (expression.kind) {
      case Expression::Kind::literal:
        return expression.value;
      case Expression::Kind::name: {
        const Value* found = find(expression.text);
        return found == nullptr ? undefined_value() : *found;
      }
      case Expression::Kind::list:
        return Value(arguments_of(expression).values);
      case Expression::Kind::mapping:
        return mapping_of(expression);
      case Expression::Kind::item:
        return item(expression);
      case Expression::Kind::slice:
        return slice_of(arguments_of(expression).values, here);
      case Expression::Kind::call:
        if (expression.method) return method_value(expression.text, arguments_of(expression), here);
        if (const auto macro = macros_.find(expression.text); macro != macros_.end()) {
          return called(*macro->second, arguments_of(expression), expression.line);
        }
        return function_value(expression.text, arguments_of(expression), here);
      case Expression::Kind::filter:
        return filtered(expression.text, arguments_of(expression), here);
      case Expression::Kind::test:
        return tested(expression.text, arguments_of(expression), here);
      case Expression::Kind::unary:
        return unary(expression);
      case Expression::Kind::binary:
        return binary(expression);
      case Expression::Kind::condition:
        if (is_true(evaluate(parts[0]))) return evaluate(parts[1]);
        return parts.size() > 2 ? evaluate(parts[2]) : undefined_value();
    }
    return undefined_value();
  }
  /// An item of a variable takes no copy of the variable.
  Value item(const Expression& expression) {
    const Expression& container = expression.parts[0];
    const Value key = evaluate(expression.parts[1]);
    const Value* found = container.kind == Expression::Kind::name ? find(container.text) : nullptr;
    return item_of(found != nullptr ? *found : evaluate(container), key, place(expression.line));
  }
  Value unary(const Expression& expression) {
    const Value value = evaluate(expression.parts[0]);
    if (expression.text == "not") return !is_true(value);
    return binary_value(expression.text, 0, value, place(expression.line));
  }
  Value binary(const Expression& expression) {
    Value left = evaluate(expression.parts[0]);
    if (expression.text == "and" || expression.text == "or") {
      return is_true(left) == (expression.text == "or") ? left : evaluate(expression.parts[1]);
    }
    return binary_value(expression.text, left, evaluate(expression.parts[1]), place(expression.line));
  }
  Value mapping_of(const Expression& expression) {
    Value made = Value::object();
    const std::vector<Value> values = arguments_of(expression).values;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
      if (!values[i].is_string()) refuse_template(place(expression.line), "a mapping whose keys are no texts");
      made[values[i].get<std::string>()] = values[i + 1];
    }
    return made;
  }
  TemplateArguments arguments_of(const Expression& expression) {
    TemplateArguments made;
    const std::size_t unnamed = expression.parts.size() - expression.names.size();
    for (std::size_t i = 0; i < expression.parts.size(); ++i) {
      Value value = evaluate(expression.parts[i]);
      if (i < unnamed) {
        made.values.push_back(std::move(value));
      } else {
        made.named[expression.names[i - unnamed]] = std::move(value);
      }
    }
    return made;
  }

  std::string_view file_;
  std::vector<Variables> scopes_;                                // the innermost last
  std::map<std::string, const Statement*, std::less<>> macros_;  // statements of the template
  std::string out_;
  std::vector<ByteRange> generated_;  // of out_
  std::size_t work_ = 0;
  int calls_ = 0;
};

Value parsed(const std::string& text, const std::string& name) {
  Value value = Value::parse(text, nullptr, false);
  if (value.is_discarded()) throw JobError(name + " is not valid JSON");
  return value;
}

Value message_of(const ChatMessage& message, std::size_t index) {
  Value made{{"role", message.role}, {"content", message.content}};
  if (message.fields.empty()) return made;
  const std::string name = "messages[" + std::to_string(index) + "]";
  const Value fields = parsed(message.fields, name);
  for (const auto& [key, value] : fields.items()) made[key] = value;
  return made;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string file)
    : file_(std::move(file)), tree_(std::make_unique<Tree>(Tree{parse_template(source, file_)})) {}

ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::uses_generation() const {
  return tree_->uses_generation;
}

bool ChatTemplate::uses_date() const {
  return tree_->uses_date;
}

RenderedChat ChatTemplate::render(std::span<const ChatMessage> messages, const ChatContext& context,
                                  ChatEnd end) const {
  Value list = Value::array();
  for (std::size_t i = 0; i < messages.size(); ++i) list.push_back(message_of(messages[i], i));
  Variables variables{{"messages", std::move(list)},
                      {"add_generation_prompt", end == ChatEnd::prompt},
                      {"tools", context.tools.empty() ? Value() : parsed(context.tools, "tools")},
                      {"documents", Value()}};
  if (!context.bos_token.empty()) variables["bos_token"] = context.bos_token;
  if (!context.eos_token.empty()) variables["eos_token"] = context.eos_token;
  if (!context.variables.empty()) {
    const Value more = parsed(context.variables, "variables");
    for (const auto& [key, value] : more.items()) variables[key] = value;
  }
  return Renderer(file_, std::move(variables)).render(tree_->body);
}

std::string ChatTemplate::render_text(std::span<const ChatMessage> messages, const ChatContext& context,
                                      ChatEnd end) const {
  return render(messages, context, end).text;
}

}  // namespace maestro
