// SPDX-License-Identifier: Apache-2.0
// Values of a chat template and what Jinja computes with them. Values are JSON; an undefined value is a discarded one.
// Not a public header.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/chat/template_lexer.hpp"

namespace maestro {

using TemplateValue = nlohmann::ordered_json;

/// An undefined value.
[[nodiscard]] inline TemplateValue undefined_value() {
  return TemplateValue(TemplateValue::value_t::discarded);
}
/// Arguments of a filter, a test or a function; the operand of the first two, or the object of a method, is the first.
struct TemplateArguments {
  std::vector<TemplateValue> values;
  std::map<std::string, TemplateValue> named;
};

inline constexpr std::size_t longest_template_text = std::size_t{16} << 20;  ///< bytes
/// Returns a measure of the time and memory that a copy takes, in bytes. Throws JobError for a value that nests deeper
/// than 64 levels: copies are recursive.
[[nodiscard]] std::size_t weight_of(const TemplateValue& value, const TemplatePlace& place, int level = 0);
/// Whether `if` takes it.
[[nodiscard]] bool is_true(const TemplateValue& value);
/// What {{ }} prints. Throws JobError for lists and mappings.
[[nodiscard]] std::string printed(const TemplateValue& value, const TemplatePlace& place);
/// x[key] and x.key; undefined where there is none. Throws JobError when x is undefined.
[[nodiscard]] TemplateValue item_of(const TemplateValue& container, const TemplateValue& key,
                                    const TemplatePlace& place);
/// x[begin:end:step] of a list or an ASCII text.
[[nodiscard]] TemplateValue slice_of(const std::vector<TemplateValue>& parts, const TemplatePlace& place);
/// What a loop goes over; a mapping gives its keys.
[[nodiscard]] std::vector<TemplateValue> elements_of(const TemplateValue& value, const TemplatePlace& place);

/// a `operation` b, of all binary operators but `and` and `or`. These and the next throw JobError, and refuse by name
/// whatever they do not know.
[[nodiscard]] TemplateValue binary_value(const std::string& operation, const TemplateValue& a, const TemplateValue& b,
                                         const TemplatePlace& place);
[[nodiscard]] bool tested(const std::string& test, const TemplateArguments& arguments, const TemplatePlace& place);
[[nodiscard]] TemplateValue filtered(const std::string& filter, const TemplateArguments& arguments,
                                     const TemplatePlace& place);
[[nodiscard]] TemplateValue method_value(const std::string& method, const TemplateArguments& arguments,
                                         const TemplatePlace& place);
[[nodiscard]] TemplateValue function_value(const std::string& function, const TemplateArguments& arguments,
                                           const TemplatePlace& place);

}  // namespace maestro
