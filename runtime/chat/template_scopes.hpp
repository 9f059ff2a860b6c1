// SPDX-License-Identifier: Apache-2.0
// The scopes of a chat template's variables. Not a public header.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/template_values.hpp"

namespace maestro {

using TemplateVariables = std::map<std::string, TemplateValue, std::less<>>;

/// Variables of a body, and the enclosing scope.
struct TemplateScope {
  TemplateVariables variables;
  TemplateScope* outer = nullptr;
  bool kept = false;  ///< a macro refers to it
};

/// Scopes have stable addresses. A closed scope is reused, unless it is kept.
class TemplateScopes {
 public:
  explicit TemplateScopes(TemplateVariables variables);

  void open();
  void close();
  /// Makes another scope the innermost. Returns the previous scope.
  TemplateScope* enter(TemplateScope* scope) { return std::exchange(innermost_, scope); }
  /// Keeps the innermost scope and the scopes around it after they are closed.
  void keep();

  [[nodiscard]] TemplateScope* innermost() const { return innermost_; }
  [[nodiscard]] TemplateVariables& variables() { return innermost_->variables; }
  /// Sets a variable of the innermost scope.
  void set(const std::string& name, TemplateValue value) { variables().insert_or_assign(name, std::move(value)); }
  /// Returns the variable that is visible from the innermost scope, or null.
  [[nodiscard]] const TemplateValue* find(const std::string& name) const;

 private:
  std::deque<TemplateScope> scopes_;
  std::vector<TemplateScope*> free_;  // elements of scopes_
  TemplateScope* innermost_;
};

}  // namespace maestro
