// SPDX-License-Identifier: Apache-2.0
// Objects that a rendering owns and templates change or call: namespaces, macros, loops, cyclers, joiners. Not a public
// header.
#pragma once

#include <cstdint>

#include "runtime/chat/template_tree.hpp"
#include "runtime/chat/template_values.hpp"

namespace maestro {

struct TemplateScope;

struct TemplateObject {
  enum class Kind : std::uint8_t { space, macro, loop, cycler, joiner };
  Kind kind = Kind::space;
  TemplateMapping attributes = {};                  ///< of a namespace
  const TemplateStatement* statement = nullptr;     ///< macro: its definition; loop: if it is recursive, itself
  TemplateScope* scope = nullptr;                   ///< where the macro or the loop is written
  TemplateValues items = {};                        ///< loop, cycler
  std::size_t at = 0;                               ///< loop, cycler: index of the current item
  int depth = 0;                                    ///< of a recursive loop
  TemplateValue last = TemplateValue::undefined();  ///< loop: arguments of changed(); joiner: separator
  bool used = false;                                ///< joiner: it has been called
};

/// Returns x.name; undefined if there is none.
[[nodiscard]] TemplateValue object_attribute(TemplateObject& object, const std::string& name);

/// Returns the text that {{ }} prints. Throws JobError for an object without a stable text.
[[nodiscard]] std::string object_repr(const TemplateObject& object, const TemplatePlace& place);

}  // namespace maestro
