// SPDX-License-Identifier: Apache-2.0
// Functions that every chat template can call: range, dict, namespace, strftime_now, ... Not a public header.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_objects.hpp"

namespace maestro {

/// State of a rendering that functions read or make.
struct TemplateGlobals {
  std::deque<TemplateObject> objects;  ///< objects that values point to; they end with the rendering
  std::optional<std::chrono::sys_seconds> date;
};

/// Returns whether a function has this name.
[[nodiscard]] bool is_function(std::string_view name, const TemplateGlobals& globals);
/// Calls a function. Throws JobError as the function does.
[[nodiscard]] TemplateValue function_value(const std::string& function, const TemplateArguments& arguments,
                                           TemplateGlobals& globals, const TemplatePlace& place);

}  // namespace maestro
