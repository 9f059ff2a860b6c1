// SPDX-License-Identifier: Apache-2.0
// The table of all values' methods, and the methods of lists, mappings and objects.
#include <algorithm>
#include <array>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_objects.hpp"
#include "runtime/chat/template_text.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Call = TemplateCall;
using Kind = TemplateValue::Kind;

namespace {

Value view(const Call& call, const char* type, Value (*part)(const TemplateMapping::Pair&)) {
  call.takes(1);
  Values made;
  for (const TemplateMapping::Pair& pair : call.operand().mapping().pairs()) made.push_back(part(pair));
  return Value::sequence(Kind::view, std::move(made), type);
}
Value keys(const Call& call) {
  return view(call, "dict_keys", [](const TemplateMapping::Pair& pair) { return pair.first; });
}
Value values(const Call& call) {
  return view(call, "dict_values", [](const TemplateMapping::Pair& pair) { return pair.second; });
}
Value items(const Call& call) {
  return view(call, "dict_items", [](const TemplateMapping::Pair& pair) {
    return Value::tuple({pair.first, pair.second});
  });
}
Value get(const Call& call) {
  call.takes(3);
  if (!call.has(1)) call.fail("needs a key");
  const Value* found = call.operand().mapping().find(call.argument(1, Value()));
  return found == nullptr ? call.argument(2, Value()) : *found;
}
Value copy(const Call& call) {
  call.takes(1);
  return call.operand();
}

Value count(const Call& call) {
  call.takes(2);
  const Value wanted = call.argument(1, Value());
  return std::ranges::count_if(call.operand().elements(),
                               [&](const Value& each) { return equal(each, wanted, call.place()); });
}
Value index(const Call& call) {
  call.takes(2);
  const Value wanted = call.argument(1, Value());
  const Values& elements = call.operand().elements();
  const auto found =
      std::ranges::find_if(elements, [&](const Value& each) { return equal(each, wanted, call.place()); });
  if (found == elements.end()) call.fail("does not find its value");
  return found - elements.begin();
}

/// Returns the arguments from the second on, as a tuple.
Value others(const Call& call) {
  call.takes(std::size_t{1} << 20);
  return Value::tuple({call.arguments().values.begin() + 1, call.arguments().values.end()});
}
Value cycle(const Call& call) {
  const Value given = others(call);
  if (given.elements().empty()) call.fail("has no values");
  return given.elements()[call.operand().object()->at % given.elements().size()];
}
Value changed(const Call& call) {
  const Value given = others(call);
  Value& last = call.operand().object()->last;
  if (equal(last, given, call.place())) return false;
  last = given;
  return true;
}
Value next(const Call& call) {
  call.takes(1);
  TemplateObject& object = *call.operand().object();
  const std::size_t now = object.at;
  object.at = (now + 1) % object.items.size();
  return object.items[now];
}
Value reset(const Call& call) {
  call.takes(1);
  call.operand().object()->at = 0;
  return {};
}

const TemplateTable& list_methods() {
  static const TemplateTable table{{"count", count}, {"index", index}, {"copy", copy}};
  return table;
}
const TemplateTable& tuple_methods() {
  static const TemplateTable table{{"count", count}, {"index", index}};
  return table;
}
const TemplateTable& mapping_methods() {
  static const TemplateTable table{{"get", get}, {"items", items}, {"keys", keys}, {"values", values}, {"copy", copy}};
  return table;
}
const TemplateTable& object_methods() {
  static const TemplateTable table{{"cycle", cycle}, {"changed", changed}, {"next", next}, {"reset", reset}};
  return table;
}

const TemplateTable* methods_of(const Value& value) {
  if (value.is_text()) return &text_methods();
  if (value.is(Kind::list)) return &list_methods();
  if (value.is(Kind::tuple) || value.is(Kind::range)) return &tuple_methods();
  if (value.is_mapping()) return &mapping_methods();
  return value.is(Kind::object) ? &object_methods() : nullptr;
}

/// Returns whether a name is another method in Python.
bool is_known(const Value& value, std::string_view name) {
  constexpr std::array<std::string_view, 8> of_texts{"casefold",  "encode",      "format_map", "isidentifier",
                                                     "maketrans", "isprintable", "translate",  "unescape"};
  if (value.is_text()) return std::ranges::find(of_texts, name) != of_texts.end();
  return value.is_mapping() && name == "fromkeys";
}

/// Returns the arguments of a safe text's method, escaped.
TemplateArguments escaped(const TemplateArguments& arguments) {
  TemplateArguments made = arguments;
  std::ranges::transform(made.values, made.values.begin(), as_escaped);
  for (auto& [name, value] : made.named) value = as_escaped(value);
  return made;
}
Value as_markup(const Value& value) {
  if (value.is_text()) return Value::markup(value.text());
  if (!value.is(Kind::list) && !value.is(Kind::tuple)) return value;
  Values all = value.elements();
  std::ranges::transform(all, all.begin(), as_markup);
  return Value::sequence(value.kind(), std::move(all));
}

}  // namespace

Value as_escaped(const Value& value) {
  if (value.is_text()) return value.is_markup() ? value : Value::markup(escaped_html(value.text()));
  if (!value.is(Kind::list) && !value.is(Kind::tuple)) return value;
  Values all = value.elements();
  std::ranges::transform(all, all.begin(), as_escaped);
  return Value::sequence(value.kind(), std::move(all));
}

bool has_method(const Value& value, std::string_view name) {
  if (value.is(Kind::object)) return object_attribute(*value.object(), std::string(name)).is(Kind::method);
  const TemplateTable* table = methods_of(value);
  return table != nullptr && (table->contains(name) || is_known(value, name));
}

Value method_value(const std::string& method, const TemplateArguments& arguments, const TemplatePlace& place) {
  const Value& receiver = arguments.values.at(0);
  const TemplateTable* table = methods_of(receiver);
  const auto found = table == nullptr ? TemplateTable::const_iterator() : table->find(method);
  if (table == nullptr || found == table->end()) Call("method", method, arguments, place).refuse();
  if (!receiver.is_markup()) return found->second(Call("method", method, arguments, place));
  const TemplateArguments safe = escaped(arguments);
  return as_markup(found->second(Call("method", method, safe, place)));
}

}  // namespace maestro
