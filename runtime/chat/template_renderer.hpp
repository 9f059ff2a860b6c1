// SPDX-License-Identifier: Apache-2.0
// One rendering of a parsed chat template. Not a public header.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/template_globals.hpp"
#include "runtime/chat/template_tree.hpp"

namespace maestro {

inline constexpr std::size_t work_of_template_step = 2048;  ///< of a loop or a macro

using TemplateVariables = std::map<std::string, TemplateValue, std::less<>>;

/// Variables of a body, and the scope around it.
struct TemplateScope {
  TemplateVariables variables;
  TemplateScope* outer = nullptr;
  bool kept = false;  ///< a macro refers to it
};

class TemplateRenderer {
 public:
  TemplateRenderer(std::string_view file, TemplateVariables variables, std::optional<std::chrono::sys_seconds> date);

  /// Once. Throws JobError. If `ranges` holds, also for {% generation %} blocks whose place in the text is not known.
  RenderedChat render(const TemplateTree& tree, bool ranges);

 private:
  using Value = TemplateValue;
  using Expression = TemplateExpression;
  using Statement = TemplateStatement;
  using Body = std::vector<Statement>;
  enum class Flow : std::uint8_t { next, leave, proceed };
  class Level;  // counts nested work

  [[nodiscard]] TemplatePlace place(int line) const { return {file_, line}; }
  void spend(std::size_t work, int line);

  // ---- statements ----
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  void write(std::string_view text, int line);
  void output(const Expression& expression);
  Flow choose(const Statement& statement);
  void set(const Statement& statement);
  void filter(const Statement& statement);
  Flow with(const Statement& statement);
  Flow generate(const Statement& statement);
  void loop(const Statement& statement);
  /// Runs the loop over `elements`; `depth` is that of a recursive one.
  void loop_over(const Statement& statement, TemplateValues elements, int depth);
  TemplateValues kept_elements(const Statement& statement, TemplateValues elements);
  void define_macro(const Statement& statement);
  void call_with_body(const Statement& statement);
  void assign(const Expression& target, const Value& value);

  // ---- scopes and captured text ----
  void open_scope();
  void close_scope();
  /// Returns the text that `write` adds to the output, which loses it.
  template <class Write>
  Value captured(Write write);
  [[nodiscard]] Value* find(const std::string& name);

  // ---- calls ----
  /// Runs a macro's body with the output where it is.
  void call_macro(const TemplateObject& macro, TemplateArguments arguments, int line);
  void bind(const Statement& macro, TemplateArguments arguments, int line);
  void loop_again(const TemplateObject& loop, const TemplateArguments& arguments, int line);
  /// Whether the value is a macro or a recursive loop: it is called, and writes.
  bool writes(const Value& callee, const TemplateArguments& arguments, int line);
  Value call(const Expression& expression);
  Value call_value(const Value& callee, TemplateArguments arguments, const Expression& expression);

  // ---- expressions ----
  Value evaluate(const Expression& expression);
  Value made_by(const Expression& expression);
  Value name(const Expression& expression);
  Value item(const Expression& expression);
  Value comparison(const Expression& expression);
  Value unary(const Expression& expression);
  Value mapping(const Expression& expression);
  TemplateValues values_of(const Expression& expression);
  TemplateArguments arguments_of(const Expression& expression, std::size_t first);

  std::string_view file_;
  TemplateGlobals globals_;
  std::deque<TemplateScope> scopes_;
  std::vector<TemplateScope*> free_;  // of scopes_
  TemplateScope* scope_;              // the innermost
  std::string out_;
  std::vector<ByteRange> generated_;  // of out_
  bool lost_ = false;                 // a block wrote to a text that became a value
  Value body_;                        // text of the body whose filters are evaluated
  std::size_t work_ = 0;
  int calls_ = 0;
  int levels_ = 0;
};

template <class Write>
TemplateValue TemplateRenderer::captured(Write write) {
  std::string before = std::exchange(out_, "");
  std::vector<ByteRange> ranges = std::exchange(generated_, {});
  write();
  lost_ = lost_ || !generated_.empty();
  generated_ = std::move(ranges);
  return std::exchange(out_, std::move(before));
}

}  // namespace maestro
