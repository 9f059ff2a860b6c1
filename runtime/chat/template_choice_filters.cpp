// SPDX-License-Identifier: Apache-2.0
// The tests, and filters that apply a test, a filter or an attribute to elements.
#include <algorithm>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_objects.hpp"
#include "runtime/chat/template_text.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Call = TemplateCall;
using Kind = TemplateValue::Kind;

namespace {

// ---- tests ----

template <bool (*holds)(const Value&)>
Value holds_for(const Call& call) {
  call.takes(1);
  return holds(call.operand());
}
template <Value::Kind kind>
bool has_kind(const Value& value) {
  return value.is(kind);
}
bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_sequence(const Value& value) {  // has a length and is read by position
  return value.is_undefined() || value.is_text() || value.is_mapping() ||
         (value.has_elements() && !value.is(Kind::view));
}
bool is_iterable(const Value& value) {
  const bool loop = value.is(Kind::object) && value.object()->kind == TemplateObject::Kind::loop;
  return value.is_undefined() || value.is_text() || value.is_mapping() || value.has_elements() ||
         value.is(Kind::iterator) || loop;
}
bool is_callable(const Value& value) {
  if (!value.is(Kind::object)) return value.is(Kind::method) || value.is_undefined();
  return value.object()->kind != TemplateObject::Kind::space && value.object()->kind != TemplateObject::Kind::cycler;
}
template <bool wanted>
bool is_boolean(const Value& value) {
  return value.is(Kind::boolean) && (value.whole() != 0) == wanted;
}
bool is_escaped(const Value& value) {
  return value.is_markup();
}
bool is_filter_name(const Value& value) {
  return value.is_text() && is_filter(value.text());
}
bool is_test_name(const Value& value) {
  return value.is_text() && is_test(value.text());
}

Value compare(const Call& call, std::string_view operation) {
  call.takes(2);
  if (!call.has(1)) call.fail("has nothing to compare with");
  return compared(operation, call.operand(), call.argument(1, Value()), call.place());
}
Value same(const Call& call) {
  call.takes(2);
  const Value other = call.argument(1, Value());
  return call.operand().kind() == other.kind() && equal(call.operand(), other, call.place());
}
std::int64_t rest(const Call& call, const Value& divisor) {
  const Value made = binary_value("%", call.operand(), divisor, call.place());
  if (!made.is_number()) call.fail("takes a number");
  return made.real() == 0 ? 0 : made.real() == 1 ? 1 : 2;
}
Value even(const Call& call) {
  call.takes(1);
  return rest(call, 2) == 0;
}
Value odd(const Call& call) {
  call.takes(1);
  return rest(call, 2) == 1;
}
Value divisible(const Call& call) {
  call.takes(2, {"num"});
  return rest(call, call.argument(1, Value(), "num")) == 0;
}
template <CaseKind kind>
Value has_case(const Call& call) {
  call.takes(1);
  return method_value(kind == CaseKind::lower ? "islower" : "isupper", {{call.printed_operand()}, {}}, call.place());
}

/// Adds a test that is a comparison, under all its names.
void add_comparison(TemplateTable& table, const std::string& operation, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    table[name] = [operation](const Call& call) { return compare(call, operation); };
  }
}

TemplateTable make_tests() {
  TemplateTable table{{"defined", holds_for<is_defined>},
                      {"undefined", holds_for<has_kind<Kind::undefined>>},
                      {"none", holds_for<has_kind<Kind::none>>},
                      {"string", holds_for<has_kind<Kind::text>>},
                      {"mapping", holds_for<has_kind<Kind::mapping>>},
                      {"sequence", holds_for<is_sequence>},
                      {"iterable", holds_for<is_iterable>},
                      {"callable", holds_for<is_callable>},
                      {"number", holds_for<is_number>},
                      {"integer", holds_for<has_kind<Kind::integer>>},
                      {"float", holds_for<has_kind<Kind::real>>},
                      {"boolean", holds_for<has_kind<Kind::boolean>>},
                      {"true", holds_for<is_boolean<true>>},
                      {"false", holds_for<is_boolean<false>>},
                      {"escaped", holds_for<is_escaped>},
                      {"filter", holds_for<is_filter_name>},
                      {"test", holds_for<is_test_name>},
                      {"sameas", same},
                      {"even", even},
                      {"odd", odd},
                      {"divisibleby", divisible},
                      {"lower", has_case<CaseKind::lower>},
                      {"upper", has_case<CaseKind::upper>}};
  add_comparison(table, "in", {"in"});
  add_comparison(table, "==", {"==", "eq", "equalto"});
  add_comparison(table, "!=", {"!=", "ne"});
  add_comparison(table, ">", {">", "gt", "greaterthan"});
  add_comparison(table, ">=", {">=", "ge"});
  add_comparison(table, "<", {"<", "lt", "lessthan"});
  add_comparison(table, "<=", {"<=", "le"});
  return table;
}

// ---- filters ----

/// Returns the operand's elements; nothing for an operand that is false, such as none.
Values elements(const Call& call) {
  return is_true(call.operand()) ? elements_of(call.operand(), call.place()) : Values{};
}

/// Returns the arguments from `index` on, for a call with another operand.
TemplateArguments rest_of(const Call& call, std::size_t index) {
  const TemplateArguments& given = call.arguments();
  TemplateArguments made{{Value()}, given.named};
  for (std::size_t i = index; i < given.values.size(); ++i) made.values.push_back(given.values[i]);
  return made;
}

/// Returns the elements that pass a test, or with `attribute` whose attribute passes it; without a test, true elements.
template <bool wanted, bool attribute>
Value selected(const Call& call) {
  const std::size_t at = attribute ? 2 : 1;
  if (attribute && !call.has(1)) call.fail("needs an attribute");
  const Value test = call.argument(at, Value());
  TemplateArguments arguments = rest_of(call, at + 1);
  Values kept;
  for (const Value& each : elements(call)) {
    arguments.values[0] = attribute ? path_of(each, call.argument(1, Value()), call.place()) : each;
    const bool holds =
        test.is_none() ? is_true(arguments.values[0]) : tested(call.text_of(test), arguments, call.place());
    if (holds == wanted) kept.push_back(each);
  }
  return Value::iterator(std::move(kept));
}

/// Returns an attribute; at each step `absent`, unless it is none, replaces an undefined value.
Value attribute_or(const Call& call, const Value& element, const Value& path, const Value& absent) {
  if (absent.is_none() || !path.is_text()) {
    const Value found = path_of(element, path, call.place());
    return found.is_undefined() && !absent.is_none() ? absent : found;
  }
  Value found = element;
  const Value names = method_value("split", {{path, "."}, {}}, call.place());
  for (const Value& name : names.elements()) {
    found = path_of(found, name, call.place());
    if (found.is_undefined()) found = absent;
  }
  return found;
}

Value map(const Call& call) {
  const bool by_attribute = call.arguments().values.size() == 1 && call.arguments().find("attribute") != nullptr;
  if (by_attribute) call.takes(1, {"attribute", "default"});
  if (!by_attribute && !call.has(1)) call.fail("needs a filter or an attribute");
  TemplateArguments arguments = by_attribute ? TemplateArguments() : rest_of(call, 2);
  Values made;
  for (const Value& each : elements(call)) {
    if (by_attribute) {
      made.push_back(
          attribute_or(call, each, *call.arguments().find("attribute"), call.argument(9, Value(), "default")));
      continue;
    }
    arguments.values[0] = each;
    made.push_back(filtered(call.text_argument(1, Value()), arguments, call.place()));
  }
  return Value::iterator(std::move(made));
}

Value as_default(const Call& call) {
  call.takes(3, {"default_value", "boolean"});
  const bool falsy_too = is_true(call.argument(2, false, "boolean"));
  const bool kept = falsy_too ? is_true(call.operand()) : !call.operand().is_undefined();
  return kept ? call.operand() : call.argument(1, "", "default_value");
}

Value attr(const Call& call) {
  call.takes(2);
  const std::string name = printed(call.argument(1, Value()), call.place());
  const Value& value = call.operand();
  const bool own = value.is(Kind::object) || has_method(value, name);
  return own ? attribute_of(value, name, call.place()) : Value::undefined();
}

TemplateTable all_filters() {
  TemplateTable table{{"select", selected<true, false>},
                      {"reject", selected<false, false>},
                      {"selectattr", selected<true, true>},
                      {"rejectattr", selected<false, true>},
                      {"map", map},
                      {"default", as_default},
                      {"d", as_default},
                      {"attr", attr}};
  for (const TemplateTable* other : {&text_filters(), &sequence_filters()}) table.insert(other->begin(), other->end());
  return table;
}

const TemplateTable& filters() {
  static const TemplateTable table = all_filters();
  return table;
}
const TemplateTable& tests() {
  static const TemplateTable table = make_tests();
  return table;
}

}  // namespace

bool is_filter(std::string_view name) {
  return filters().contains(name);
}

bool is_test(std::string_view name) {
  return tests().contains(name);
}

Value filtered(const std::string& filter, const TemplateArguments& arguments, const TemplatePlace& place) {
  const Call call("filter", filter, arguments, place);
  const auto found = filters().find(filter);
  if (found == filters().end()) call.refuse();
  return found->second(call);
}

bool tested(const std::string& test, const TemplateArguments& arguments, const TemplatePlace& place) {
  const Call call("test", test, arguments, place);
  const auto found = tests().find(test);
  if (found == tests().end()) call.refuse();
  return is_true(found->second(call));
}

}  // namespace maestro
