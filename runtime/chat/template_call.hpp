// SPDX-License-Identifier: Apache-2.0
// A call of a filter, a test, a method or a function in a chat template. Not a public header.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/chat/template_values.hpp"

namespace maestro {

/// Arguments of a filter, test, method or function. The first is the operand, or the method's object.
struct TemplateArguments {
  TemplateValues values;
  std::vector<std::pair<std::string, TemplateValue>> named;  ///< arguments by name, in order

  [[nodiscard]] const TemplateValue* find(std::string_view name) const;
};

/// A call, and its arguments by position or name.
class TemplateCall {
 public:
  TemplateCall(std::string_view kind, std::string_view name, const TemplateArguments& arguments, TemplatePlace place)
      : kind_(kind), name_(name), arguments_(&arguments), place_(place) {}

  [[nodiscard]] const TemplatePlace& place() const { return place_; }
  [[nodiscard]] const TemplateArguments& arguments() const { return *arguments_; }
  [[noreturn]] void fail(const std::string& problem) const { fail_template(place_, "the " + title() + " " + problem); }
  [[noreturn]] void refuse() const { refuse_template(place_, "the " + title()); }

  [[nodiscard]] const TemplateValue& operand() const;
  /// Returns the argument at `index`, counted from the operand at 0, or by name.
  [[nodiscard]] TemplateValue argument(std::size_t index, const TemplateValue& absent,
                                       std::string_view name = "") const;
  [[nodiscard]] bool has(std::size_t index, std::string_view name = "") const;
  /// Refuses unread arguments.
  void takes(std::size_t most, std::initializer_list<std::string_view> names = {}) const;
  void check_length(const std::string& text) const;
  /// Throws JobError for a value that is not a text.
  [[nodiscard]] const std::string& text() const { return text_of(operand()); }
  [[nodiscard]] const std::string& text_of(const TemplateValue& value) const;
  [[nodiscard]] std::string text_argument(std::size_t index, const TemplateValue& absent,
                                          std::string_view name = "") const;
  [[nodiscard]] std::int64_t whole_argument(std::size_t index, const TemplateValue& absent,
                                            std::string_view name = "") const;
  /// Returns the operand as Python's str().
  [[nodiscard]] std::string printed_operand() const { return printed(operand(), place_); }

 private:
  [[nodiscard]] std::string title() const;

  std::string_view kind_;
  std::string_view name_;
  const TemplateArguments* arguments_;
  TemplatePlace place_;
};

using TemplateTable = std::map<std::string, std::function<TemplateValue(const TemplateCall&)>, std::less<>>;

/// Filters by subject; filtered() finds all.
[[nodiscard]] const TemplateTable& text_filters();
[[nodiscard]] const TemplateTable& sequence_filters();
/// Text methods; see methods_of().
[[nodiscard]] const TemplateTable& text_methods();
/// Returns the result of filter tojson: transformers', which is json.dumps().
[[nodiscard]] TemplateValue json_text(const TemplateCall& call);
/// Returns the result of method format, and of text % values.
[[nodiscard]] TemplateValue formatted(const TemplateCall& call);
[[nodiscard]] std::string percent_formatted(const std::string& format, const TemplateValue& values,
                                            const TemplatePlace& place);

// ---- operations ----

/// Returns x.key: a method of the value, else its item, else undefined. Throws JobError if x is undefined.
[[nodiscard]] TemplateValue attribute_of(const TemplateValue& container, const std::string& name,
                                         const TemplatePlace& place);
/// Returns x[key]: its item, else a method with that name.
[[nodiscard]] TemplateValue item_of(const TemplateValue& container, const TemplateValue& key,
                                    const TemplatePlace& place);
/// Returns the value that a filter's attribute="a.0.b" names.
[[nodiscard]] TemplateValue path_of(const TemplateValue& container, const TemplateValue& path,
                                    const TemplatePlace& place);
/// Returns x[begin:end:step] of a list, a tuple, a range or a text.
[[nodiscard]] TemplateValue slice_of(const TemplateValues& parts, const TemplatePlace& place);
/// Returns a `operation` b, for all binary operators except `and` and `or`. This and the next functions throw JobError,
/// and refuse unknown operations by name.
[[nodiscard]] TemplateValue binary_value(std::string_view operation, const TemplateValue& a, const TemplateValue& b,
                                         const TemplatePlace& place);
[[nodiscard]] TemplateValue compared(std::string_view operation, const TemplateValue& a, const TemplateValue& b,
                                     const TemplatePlace& place);
[[nodiscard]] bool contains(const TemplateValue& container, const TemplateValue& value, const TemplatePlace& place);
[[nodiscard]] TemplateValue negated(const TemplateValue& value, const TemplatePlace& place);

[[nodiscard]] bool tested(const std::string& test, const TemplateArguments& arguments, const TemplatePlace& place);
[[nodiscard]] TemplateValue filtered(const std::string& filter, const TemplateArguments& arguments,
                                     const TemplatePlace& place);
[[nodiscard]] TemplateValue method_value(const std::string& method, const TemplateArguments& arguments,
                                         const TemplatePlace& place);
/// Escapes texts for HTML, also in a list, unless they are safe.
[[nodiscard]] TemplateValue as_escaped(const TemplateValue& value);
/// Returns whether the value has a method of this name that the sandbox allows.
[[nodiscard]] bool has_method(const TemplateValue& value, std::string_view name);
/// Returns whether a filter, or a test, has this name.
[[nodiscard]] bool is_filter(std::string_view name);
[[nodiscard]] bool is_test(std::string_view name);

}  // namespace maestro
