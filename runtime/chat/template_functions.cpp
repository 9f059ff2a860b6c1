// SPDX-License-Identifier: Apache-2.0
// Filters, tests, methods and functions of chat templates.
#include <algorithm>
#include <functional>

#include "runtime/chat/template_values.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = std::vector<Value>;
using Arguments = TemplateArguments;

namespace {

constexpr const char* spaces = " \t\n\r\f\v";
constexpr std::size_t most_parts = 1'000'000;  // of a text that is split

/// A call, and its arguments by place or name.
class Call {
 public:
  Call(std::string kind, const std::string& name, const Arguments& arguments, const TemplatePlace& place)
      : title_(std::move(kind) + " " + printable(name)), arguments_(&arguments), place_(place) {}

  [[nodiscard]] const TemplatePlace& place() const { return place_; }
  [[noreturn]] void fail(const std::string& problem) const { fail_template(place_, "the " + title_ + " " + problem); }
  [[noreturn]] void refuse() const { refuse_template(place_, "the " + title_); }
  [[nodiscard]] const Value& operand() const {
    if (arguments_->values.empty()) fail("has no operand");
    return arguments_->values[0];
  }
  /// The argument at `index`, of which the operand is the first, or of a name.
  [[nodiscard]] Value argument(std::size_t index, const Value& absent, const char* name = "") const {
    if (index < arguments_->values.size()) return arguments_->values[index];
    const auto found = arguments_->named.find(name);
    return found == arguments_->named.end() ? absent : found->second;
  }
  /// Refuses arguments that nothing reads.
  void takes(std::size_t most, std::initializer_list<std::string_view> names = {}) const {
    if (arguments_->values.size() > most) fail("has too many arguments");
    for (const auto& [name, value] : arguments_->named) {
      if (std::ranges::find(names, name) == names.end())
        refuse_template(place_, "the argument " + name + " of the " + title_);
    }
  }
  void check_length(const std::string& text) const {
    if (text.size() > longest_template_text) fail("makes a text longer than 16 MiB");
  }
  [[nodiscard]] const std::string& text() const { return text_of(operand()); }
  [[nodiscard]] const std::string& text_of(const Value& value) const {
    if (!value.is_string()) fail("takes a text");
    return value.get_ref<const std::string&>();
  }
  [[nodiscard]] std::string text_argument(std::size_t index, const Value& absent, const char* name = "") const {
    return text_of(argument(index, absent, name));
  }

 private:
  std::string title_;
  const Arguments* arguments_;
  TemplatePlace place_;
};

template <class Result>
using Table = std::map<std::string, std::function<Result(const Call&)>, std::less<>>;

std::string stripped(const std::string& text, const std::string& characters, bool left, bool right) {
  const std::size_t first = left ? text.find_first_not_of(characters) : 0;
  if (first == std::string::npos) return "";
  const std::size_t last = right ? text.find_last_not_of(characters) + 1 : text.size();
  return last <= first ? "" : text.substr(first, last - first);
}

template <bool left, bool right>
Value strip(const Call& call) {
  call.takes(2, {"chars"});
  return stripped(call.text(), call.text_argument(1, spaces, "chars"), left, right);
}

Value trim(const Call& call) {
  call.takes(2, {"chars"});
  return stripped(printed(call.operand(), call.place()), call.text_argument(1, spaces, "chars"), true, true);
}

Value with_case(const Call& call, char first, char last, int shift) {
  std::string text = call.text();
  for (char& c : text) {
    if (c < 0) refuse_template(call.place(), "another case of a text beyond ASCII");
    if (c >= first && c <= last) c = static_cast<char>(c + shift);
  }
  return text;
}
Value upper(const Call& call) {
  return with_case(call, 'a', 'z', 'A' - 'a');
}
Value lower(const Call& call) {
  return with_case(call, 'A', 'Z', 'a' - 'A');
}

Value length(const Call& call) {
  call.takes(1);
  const Value& value = call.operand();
  if (value.is_discarded()) return 0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }
  if (!value.is_array() && !value.is_object()) call.fail("takes a text, a list or a mapping");
  return value.size();
}

Value replace(const Call& call) {
  call.takes(3);
  const std::string from = call.text_argument(1, Value()), to = call.text_argument(2, Value());
  if (from.empty()) call.fail("has nothing to replace");
  const std::string& text = call.text();
  std::string made;
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    made.append(text, begin, at - begin).append(to);
    begin = at + from.size();
    call.check_length(made);
  }
  return made.append(text, begin);
}

Value split(const Call& call) {
  call.takes(2);
  const std::string& text = call.text();
  const std::string between = call.text_argument(1, Value());
  if (between.empty()) call.fail("has an empty separator");
  Value parts = Value::array();
  std::size_t begin = 0;
  for (std::size_t at = text.find(between); at != std::string::npos; at = text.find(between, begin)) {
    if (parts.size() == most_parts) call.fail("makes more than 1,000,000 parts");
    parts.push_back(text.substr(begin, at - begin));
    begin = at + between.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

Value as_default(const Call& call) {
  call.takes(3, {"default_value", "boolean"});
  const bool falsy_too = is_true(call.argument(2, false, "boolean"));
  const bool kept = falsy_too ? is_true(call.operand()) : !call.operand().is_discarded();
  return kept ? call.operand() : call.argument(1, "", "default_value");
}

std::string dumped(const Call& call, const Value& value) {
  try {
    return value.dump();
  } catch (const nlohmann::json::type_error&) {
    call.fail("takes no text that is not UTF-8");
  }
}

/// As Python's json.dumps(value, ensure_ascii=False). The order of a mapping's keys is lost, so it takes none.
std::string json_text(const Call& call, const Value& value) {
  if (value.is_object() && value.size() > 1) refuse_template(call.place(), "the filter tojson of a mapping");
  if (value.is_discarded()) call.fail("takes no undefined value");
  if (!value.is_array() && !value.is_object())
    return value.is_number_float() ? printed(value, call.place()) : dumped(call, value);
  std::string text;
  for (const auto& [key, each] : value.items()) {
    text += (text.empty() ? "" : ", ") + (value.is_object() ? dumped(call, key) + ": " : "") + json_text(call, each);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}
Value to_json(const Call& call) {
  call.takes(1, {"ensure_ascii"});
  if (is_true(call.argument(1, false, "ensure_ascii"))) call.refuse();
  return json_text(call, call.operand());
}

Value join(const Call& call) {
  call.takes(2, {"d"});
  const std::string between = call.text_argument(1, "", "d");
  std::string text;
  bool first = true;
  for (const Value& each : elements_of(call.operand(), call.place())) {
    text += (first ? "" : between) + printed(each, call.place());
    first = false;
    call.check_length(text);
  }
  return text;
}

Value end_of(const Call& call, bool first) {
  call.takes(1);
  const Values all = elements_of(call.operand(), call.place());
  if (all.empty()) return undefined_value();
  return first ? all.front() : all.back();
}

Value items(const Call& call) {
  call.takes(1);
  if (!call.operand().is_object()) call.fail("takes a mapping");
  Value pairs = Value::array();
  for (const auto& [key, value] : call.operand().items()) pairs.push_back({key, value});
  return pairs;
}

/// selectattr(name), selectattr(name, test, argument); `wanted` is the outcome of the test that keeps an element.
Value selected(const Call& call, bool wanted) {
  call.takes(4);
  const Value name = call.text_argument(1, Value());
  const Value test = call.argument(2, Value());
  Value kept = Value::array();
  for (const Value& each : elements_of(call.operand(), call.place())) {
    Arguments arguments{{item_of(each, name, call.place())}, {}};
    const Value other = call.argument(3, undefined_value());
    if (!other.is_discarded()) arguments.values.push_back(other);
    const bool outcome =
        test.is_null() ? is_true(arguments.values[0]) : tested(call.text_of(test), arguments, call.place());
    if (outcome == wanted) kept.push_back(each);
  }
  return kept;
}

Value get(const Call& call) {
  call.takes(3);
  if (!call.operand().is_object()) call.fail("takes a mapping");
  const Value found = item_of(call.operand(), call.argument(1, Value()), call.place());
  return found.is_discarded() ? call.argument(2, Value()) : found;
}

bool has_end(const Call& call, bool start) {
  call.takes(2);
  const std::string end = call.text_argument(1, Value());
  return start ? call.text().starts_with(end) : call.text().ends_with(end);
}

Value range(const Call& call) {
  call.takes(2);
  std::int64_t bounds[] = {0, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    const Value bound = call.argument(i, Value());
    if (bound.is_null() && i == 1) {
      bounds[1] = std::exchange(bounds[0], 0);
    } else if (bound.is_number_integer()) {
      bounds[i] = bound.get<std::int64_t>();
    } else {
      call.fail("takes whole numbers");
    }
  }
  constexpr std::int64_t most = 100'000;
  if (bounds[1] - bounds[0] > most) call.fail("has more than 100,000 numbers");
  Value numbers = Value::array();
  for (std::int64_t i = bounds[0]; i < bounds[1]; ++i) numbers.push_back(i);
  return numbers;
}

bool is_collection(const Value& value) {
  return value.is_array() || value.is_object() || value.is_string();
}

const Table<Value>& filters() {
  static const Table<Value> table{
      {"trim", trim},
      {"length", length},
      {"count", length},
      {"replace", replace},
      {"default", as_default},
      {"d", as_default},
      {"tojson", to_json},
      {"join", join},
      {"items", items},
      {"upper", upper},
      {"lower", lower},
      {"first", [](const Call& call) { return end_of(call, true); }},
      {"last", [](const Call& call) { return end_of(call, false); }},
      {"string", [](const Call& call) { return Value(printed(call.operand(), call.place())); }},
      {"safe", [](const Call& call) { return call.operand(); }},
      {"list", [](const Call& call) { return Value(elements_of(call.operand(), call.place())); }},
      {"selectattr", [](const Call& call) { return selected(call, true); }},
      {"rejectattr", [](const Call& call) { return selected(call, false); }}};
  return table;
}

const Table<Value>& methods() {
  static const Table<Value> table{{"strip", strip<true, true>},
                                  {"lstrip", strip<true, false>},
                                  {"rstrip", strip<false, true>},
                                  {"upper", upper},
                                  {"lower", lower},
                                  {"replace", replace},
                                  {"split", split},
                                  {"items", items},
                                  {"get", get},
                                  {"startswith", [](const Call& call) { return Value(has_end(call, true)); }},
                                  {"endswith", [](const Call& call) { return Value(has_end(call, false)); }}};
  return table;
}

const Table<bool>& tests() {
  static const auto equals = [](const Call& call) {
    call.takes(2);
    return is_true(binary_value("==", call.operand(), call.argument(1, undefined_value()), call.place()));
  };
  static const Table<bool> table{
      {"defined", [](const Call& call) { return !call.operand().is_discarded(); }},
      {"undefined", [](const Call& call) { return call.operand().is_discarded(); }},
      {"none", [](const Call& call) { return call.operand().is_null(); }},
      {"string", [](const Call& call) { return call.operand().is_string(); }},
      {"mapping", [](const Call& call) { return call.operand().is_object(); }},
      {"sequence", [](const Call& call) { return is_collection(call.operand()); }},
      {"iterable", [](const Call& call) { return is_collection(call.operand()) || call.operand().is_discarded(); }},
      {"number", [](const Call& call) { return call.operand().is_number() || call.operand().is_boolean(); }},
      {"integer", [](const Call& call) { return call.operand().is_number_integer(); }},
      {"boolean", [](const Call& call) { return call.operand().is_boolean(); }},
      {"true", [](const Call& call) { return call.operand() == Value(true); }},
      {"false", [](const Call& call) { return call.operand() == Value(false); }},
      {"equalto", equals},
      {"eq", equals}};
  return table;
}

const Table<Value>& functions() {
  static const Table<Value> table{{"range", range},
                                  {"raise_exception", [](const Call& call) -> Value {
                                     fail_template(call.place(),
                                                   "it refuses the messages: " + printable(call.text_argument(0, "")));
                                   }}};
  return table;
}

template <class Result>
Result called(const Table<Result>& table, const Call& call, const std::string& name) {
  const auto found = table.find(name);
  if (found == table.end()) call.refuse();
  return found->second(call);
}

}  // namespace

Value filtered(const std::string& filter, const Arguments& arguments, const TemplatePlace& place) {
  return called(filters(), Call("filter", filter, arguments, place), filter);
}

Value method_value(const std::string& method, const Arguments& arguments, const TemplatePlace& place) {
  return called(methods(), Call("method", method, arguments, place), method);
}

bool tested(const std::string& test, const Arguments& arguments, const TemplatePlace& place) {
  return called(tests(), Call("test", test, arguments, place), test);
}

Value function_value(const std::string& function, const Arguments& arguments, const TemplatePlace& place) {
  const Call call("function", function, arguments, place);
  if (function != "namespace") return called(functions(), call, function);
  if (!arguments.values.empty()) call.refuse();
  Value made = Value::object();
  for (const auto& [name, value] : arguments.named) made[name] = value;
  return made;
}

}  // namespace maestro
