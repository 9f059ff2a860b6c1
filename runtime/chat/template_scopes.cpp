// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_scopes.hpp"

namespace maestro {

TemplateScopes::TemplateScopes(TemplateVariables variables) : innermost_(&scopes_.emplace_back()) {
  innermost_->variables = std::move(variables);
}

void TemplateScopes::open() {
  TemplateScope* made = nullptr;
  if (free_.empty()) {
    made = &scopes_.emplace_back();
  } else {
    made = free_.back();
    free_.pop_back();
  }
  made->outer = innermost_;
  innermost_ = made;
}

void TemplateScopes::close() {
  TemplateScope* closed = innermost_;
  innermost_ = closed->outer;
  if (closed->kept) return;
  closed->variables.clear();
  free_.push_back(closed);
}

void TemplateScopes::keep() {
  for (TemplateScope* scope = innermost_; scope != nullptr && !scope->kept; scope = scope->outer) scope->kept = true;
}

const TemplateValue* TemplateScopes::find(const std::string& name) const {
  for (const TemplateScope* scope = innermost_; scope != nullptr; scope = scope->outer) {
    if (const auto found = scope->variables.find(name); found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace maestro
