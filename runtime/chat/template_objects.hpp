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
  TemplateMapping attributes = {};                  ///< attributes of a namespace
  const TemplateStatement* statement = nullptr;     ///< macro: its definition; recursive loop: itself
  TemplateScope* scope = nullptr;                   ///< scope that the macro or the loop is written in
  TemplateValues items = {};                        ///< loop, cycler
  std::size_t at = 0;                               ///< loop, cycler: current item's index
  int depth = 0;                                    ///< depth of a recursive loop
  TemplateValue last = TemplateValue::undefined();  ///< loop: arguments of changed(); joiner: separator
  bool used = false;                                ///< joiner: it has been called
};

/// Returns x.name; undefined if it does not exist.
[[nodiscard]] TemplateValue object_attribute(TemplateObject& object, const std::string& name);

/// Returns the text that {{ }} prints. Throws JobError for an object without a stable text.
[[nodiscard]] std::string object_repr(const TemplateObject& object, const TemplatePlace& place);

}  // namespace maestro
