// SPDX-License-Identifier: Apache-2.0
// A single rendering of a parsed chat template. Not a public header.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/template_globals.hpp"
#include "runtime/chat/template_output.hpp"
#include "runtime/chat/template_scopes.hpp"
#include "runtime/chat/template_tree.hpp"

namespace maestro {

inline constexpr std::size_t work_of_template_step = 2048;  ///< work of a loop or a macro

/// Runs the statements of a template and evaluates its expressions.
class TemplateRenderer {
 public:
  TemplateRenderer(std::string_view file, TemplateVariables variables, std::optional<std::chrono::sys_seconds> date);

  /// Renders once. Throws JobError; if `ranges` holds, also for {% generation %} blocks with an unknown place in the
  /// text.
  RenderedChat render(const TemplateTree& tree, bool ranges);

 private:
  using Value = TemplateValue;
  using Expression = TemplateExpression;
  using Statement = TemplateStatement;
  using Body = std::vector<Statement>;
  enum class Flow : std::uint8_t { next, leave, proceed };

  [[nodiscard]] TemplatePlace place(int line) const { return {file_, line}; }
  void spend(std::size_t work, int line);

  // ---- statements ----
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  void write(std::string_view text, int line) { output_.append(text, place(line)); }
  void output(const Expression& expression);
  Flow choose(const Statement& statement);
  void set(const Statement& statement);
  void filter(const Statement& statement);
  Flow with(const Statement& statement);
  Flow generate(const Statement& statement);
  void loop(const Statement& statement);
  /// Runs the loop over `elements`; `depth` is the depth of a recursive loop.
  void loop_over(const Statement& statement, TemplateValues elements, int depth);
  TemplateValues kept_elements(const Statement& statement, TemplateValues elements);
  void define_macro(const Statement& statement);
  void call_with_body(const Statement& statement);
  void assign(const Expression& target, const Value& value);

  // ---- calls ----
  /// Runs a macro's body with the current output.
  void call_macro(const TemplateObject& macro, TemplateArguments arguments, int line);
  void bind(const Statement& macro, TemplateArguments arguments, int line);
  void loop_again(const TemplateObject& loop, const TemplateArguments& arguments, int line);
  /// Returns whether the value is a macro or a recursive loop; if so, calls it, and it writes.
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
  TemplateScopes scopes_;
  TemplateOutput output_;
  Value body_;  // text of the body whose filters are evaluated
  std::size_t work_ = 0;
  int calls_ = 0;
  int levels_ = 0;
};

}  // namespace maestro
