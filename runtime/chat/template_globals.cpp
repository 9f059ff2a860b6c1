// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_globals.hpp"

#include <array>
#include <ctime>

#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Kind = TemplateValue::Kind;

namespace {

/// A call of a function: its operand is its first argument.
struct Function {
  const TemplateCall& call;
  TemplateGlobals& globals;

  Value make(TemplateObject object) const { return &globals.objects.emplace_back(std::move(object)); }
};

std::int64_t whole(const TemplateCall& call, std::size_t index, std::int64_t absent) {
  return call.whole_argument(index, absent);
}

Value range(const Function& function) {
  const TemplateCall& call = function.call;
  call.takes(3);
  const std::size_t count = call.arguments().values.size();
  if (count == 0) call.fail("needs a number");
  const std::int64_t begin = count == 1 ? 0 : whole(call, 0, 0), end = whole(call, count == 1 ? 0 : 1, 0);
  const std::int64_t step = whole(call, 2, 1);
  if (step == 0) call.fail("has the step 0");
  constexpr std::int64_t most = 100'000;
  Values numbers;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(numbers.size()) == most) call.fail("has more than 100,000 numbers");
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const std::string text = "range(" + std::to_string(begin) + ", " + std::to_string(end) +
                           (step == 1 ? "" : ", " + std::to_string(step)) + ")";
  return Value::sequence(Kind::range, std::move(numbers), text);
}

/// Returns dict() for a mapping or pairs, and for named arguments.
TemplateMapping mapping_of(const TemplateCall& call) {
  TemplateMapping made;
  if (call.arguments().values.size() > 1) call.fail("has too many arguments");
  if (!call.arguments().values.empty() && call.operand().is_mapping()) {
    made = call.operand().mapping();
  } else if (!call.arguments().values.empty()) {
    for (const Value& pair : elements_of(call.operand(), call.place())) {
      const Values both = elements_of(pair, call.place());
      if (both.size() != 2) call.fail("takes pairs of a key and a value");
      made.set(both[0], both[1]);
    }
  }
  for (const auto& [name, value] : call.arguments().named) made.set(name, value);
  return made;
}
Value dict(const Function& function) {
  return mapping_of(function.call);
}
Value space(const Function& function) {
  TemplateMapping attributes = mapping_of(function.call);
  for (const auto& [name, value] : attributes.pairs()) {
    if (name.is_text() && name.text().starts_with('_')) function.call.fail("has a name that begins with _");
  }
  return function.make({.kind = TemplateObject::Kind::space, .attributes = std::move(attributes)});
}
Value cycler(const Function& function) {
  if (function.call.arguments().values.empty()) function.call.fail("has no values");
  return function.make({.kind = TemplateObject::Kind::cycler, .items = function.call.arguments().values});
}
Value joiner(const Function& function) {
  function.call.takes(1, {"sep"});
  return function.make({.kind = TemplateObject::Kind::joiner, .last = function.call.argument(0, ", ", "sep")});
}

Value raise(const Function& function) {
  const TemplateCall& call = function.call;
  call.takes(1, {"message"});
  fail_template(call.place(),
                "it refuses the messages: " + printable(printed(call.argument(0, "", "message"), call.place())));
}

Value strftime_now(const Function& function) {
  const TemplateCall& call = function.call;
  call.takes(1, {"format"});
  std::string format = call.text_argument(0, Value(), "format");
  for (std::size_t at = 0; (at = format.find('%', at)) != std::string::npos && at + 1 < format.size(); at += 2) {
    const char name = format[at + 1];  // strftime field of a time without zone and fraction
    if (name == 'z' || name == 'Z') format.erase(at, 2), at -= 2;
    if (name == 'f') format.replace(at, 2, "000000"), at += 4;
  }
  if (format.size() > 1000) call.fail("has a format longer than 1,000 bytes");
  const std::time_t seconds = std::chrono::system_clock::to_time_t(*function.globals.date);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) call.fail("has a date that is out of range");
  std::array<char, 16384> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &parts));
}

using Functions = std::map<std::string, Value (*)(const Function&), std::less<>>;

const Functions& functions() {
  static const Functions table{{"range", range},
                               {"dict", dict},
                               {"namespace", space},
                               {"cycler", cycler},
                               {"joiner", joiner},
                               {"raise_exception", raise},
                               {"strftime_now", strftime_now}};
  return table;
}

}  // namespace

bool is_function(std::string_view name, const TemplateGlobals& globals) {
  return functions().contains(name) && (name != "strftime_now" || globals.date);
}

Value function_value(const std::string& function, const TemplateArguments& arguments, TemplateGlobals& globals,
                     const TemplatePlace& place) {
  const TemplateCall call("function", function, arguments, place);
  return functions().at(function)({call, globals});
}

}  // namespace maestro
