// SPDX-License-Identifier: Apache-2.0
// The depth of a rendering's recursion. Not a public header.
#pragma once

#include "runtime/chat/template_lexer.hpp"

namespace maestro {

/// Counts a level during its lifetime. Throws JobError beyond 2,500: a level takes up to a kilobyte of the stack.
class TemplateLevel {
 public:
  TemplateLevel(int& levels, const TemplatePlace& place) : levels_(&levels) {
    if (levels >= 2500) fail_template(place, "expressions and macros are nested deeper than 2,500 levels");
    ++levels;
  }
  ~TemplateLevel() { --*levels_; }
  TemplateLevel(const TemplateLevel&) = delete;
  TemplateLevel& operator=(const TemplateLevel&) = delete;

 private:
  int* levels_;
};

}  // namespace maestro
