// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_values.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = std::vector<Value>;

namespace {

constexpr int most_levels = 64;
constexpr std::size_t weight_of_node = 1024;  // about the time of as many bytes of a text

std::string kind_of(const Value& value) {
  if (value.is_discarded()) return "an undefined value";
  if (value.is_null()) return "none";
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "a truth value";
  if (value.is_number()) return "a number";
  return value.is_array() ? "a list" : "a mapping";
}

Value joined(const std::string& a, const std::string& b, const TemplatePlace& place) {
  if (a.size() + b.size() > longest_template_text) fail_template(place, "a text is longer than 16 MiB");
  return a + b;
}

/// Index from the end where it is negative; beyond the ends where it is beyond them.
std::int64_t from_end(std::int64_t index, std::int64_t size) {
  return index < 0 ? index + size : index;
}

[[noreturn]] void refuse_operands(const std::string& operation, const Value& a, const Value& b,
                                  const TemplatePlace& place) {
  fail_template(place, "\"" + operation + "\" does not take " + kind_of(a) + " and " + kind_of(b));
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value whole_numbers(char operation, std::int64_t a, std::int64_t b, const TemplatePlace& place) {
  // Literals have at most 15 digits, so that sums stay in range; products are bounded here.
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if (std::max(std::abs(a), std::abs(b)) > most) fail_template(place, "a number is beyond 2^31");
  if (operation == '+') return a + b;
  if (operation == '-') return a - b;
  if (operation == '*') return a * b;
  if (b == 0) fail_template(place, "a division by zero");
  if (operation == '%') return a - floor_divided(a, b) * b;
  return operation == 'd' ? Value(floor_divided(a, b)) : Value(static_cast<double>(a) / static_cast<double>(b));
}

Value arithmetic(const std::string& operation, const Value& a, const Value& b, const TemplatePlace& place) {
  const char name = operation == "//" ? 'd' : operation[0];
  if (a.is_number_integer() && b.is_number_integer()) {
    return whole_numbers(name, a.get<std::int64_t>(), b.get<std::int64_t>(), place);
  }
  if (name == '+' && a.is_string() && b.is_string()) {
    return joined(a.get_ref<const std::string&>(), b.get_ref<const std::string&>(), place);
  }
  if (name == '+' && a.is_array() && b.is_array()) {
    Value sum = a;
    sum.insert(sum.end(), b.begin(), b.end());
    return sum;
  }
  if (a.is_number() && b.is_number()) refuse_template(place, "\"" + operation + "\" of fractions");
  refuse_operands(operation, a, b, place);
}

bool equal(const Value& a, const Value& b) {
  if (a.is_discarded() || b.is_discarded()) return a.is_discarded() == b.is_discarded();
  return a == b;
}

bool contains(const Value& container, const Value& value, const TemplatePlace& place) {
  if (container.is_discarded()) return false;
  if (container.is_string() && value.is_string()) {
    return container.get_ref<const std::string&>().find(value.get_ref<const std::string&>()) != std::string::npos;
  }
  if (container.is_object()) return value.is_string() && container.contains(value.get_ref<const std::string&>());
  if (!container.is_array()) refuse_operands("in", value, container, place);
  return std::ranges::any_of(container, [&](const Value& each) { return equal(each, value); });
}

bool less(const std::string& operation, const Value& a, const Value& b, const TemplatePlace& place) {
  const bool comparable = (a.is_number() && b.is_number()) || (a.is_string() && b.is_string());
  if (!comparable) refuse_operands(operation, a, b, place);
  if (operation == "<") return a < b;
  if (operation == ">") return b < a;
  return operation == "<=" ? !(b < a) : !(a < b);
}

}  // namespace

std::size_t weight_of(const Value& value, const TemplatePlace& place, int level) {
  if (level > most_levels) fail_template(place, "a value is nested deeper than 64 levels");
  if (value.is_string()) return weight_of_node + value.get_ref<const std::string&>().size();
  std::size_t weight = weight_of_node;
  if (value.is_structured()) {
    for (const Value& each : value) weight += weight_of(each, place, level + 1);
  }
  return weight;
}

bool is_true(const Value& value) {
  if (value.is_discarded() || value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

std::string printed(const Value& value, const TemplatePlace& place) {
  if (value.is_discarded()) return "";
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) {
    std::string text = number_text(value.get<double>());
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  refuse_template(place, "the output of " + kind_of(value));
}

Value item_of(const Value& container, const Value& key, const TemplatePlace& place) {
  if (container.is_discarded()) fail_template(place, shown(key) + " is asked of an undefined value");
  if (container.is_object() && key.is_string()) {
    const auto found = container.find(key.get_ref<const std::string&>());
    return found == container.end() ? undefined_value() : *found;
  }
  if (!key.is_number_integer() || !(container.is_array() || container.is_string())) return undefined_value();
  if (container.is_string()) {
    const std::int64_t index = key.get<std::int64_t>();
    const Value end = index == -1 ? Value() : Value(index + 1);
    const Value character = slice_of({container, key, end, Value()}, place);
    return is_true(character) ? character : undefined_value();
  }
  const auto size = static_cast<std::int64_t>(container.size());
  const std::int64_t index = from_end(key.get<std::int64_t>(), size);
  return index >= 0 && index < size ? container[static_cast<std::size_t>(index)] : undefined_value();
}

Value slice_of(const Values& parts, const TemplatePlace& place) {
  const Value& container = parts[0];
  const bool text = container.is_string();
  if (!text && !container.is_array()) fail_template(place, "a slice of " + kind_of(container));
  if (text && std::ranges::any_of(container.get_ref<const std::string&>(), [](char c) { return c < 0; })) {
    refuse_template(place, "a slice of a text beyond ASCII");
  }
  const auto size = static_cast<std::int64_t>(text ? container.get_ref<const std::string&>().size() : container.size());
  for (std::size_t i = 1; i < 4; ++i) {
    if (!parts[i].is_null() && !parts[i].is_number_integer()) fail_template(place, "a bound is " + kind_of(parts[i]));
  }
  const std::int64_t step = parts[3].is_null() ? 1 : parts[3].get<std::int64_t>();
  if (step == 0) fail_template(place, "a slice has the step 0");
  // The bounds of Python's slice.indices(): before the first element is 0 or, going down, -1.
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, std::int64_t absent) {
    return given.is_null() ? absent : std::clamp(from_end(given.get<std::int64_t>(), size), low, high);
  };
  const std::int64_t begin = bound(parts[1], step > 0 ? low : high), end = bound(parts[2], step > 0 ? high : low);
  Value made = text ? Value("") : Value::array();
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    if (text) {
      made.get_ref<std::string&>() += container.get_ref<const std::string&>()[static_cast<std::size_t>(i)];
    } else {
      made.push_back(container[static_cast<std::size_t>(i)]);
    }
  }
  return made;
}

Values elements_of(const Value& value, const TemplatePlace& place) {
  if (value.is_discarded()) return {};
  if (value.is_array()) return {value.begin(), value.end()};
  if (!value.is_object()) fail_template(place, "a loop goes over a list, not over " + kind_of(value));
  Values keys;
  for (const auto& [key, unused] : value.items()) keys.emplace_back(key);
  return keys;
}

Value binary_value(const std::string& operation, const Value& a, const Value& b, const TemplatePlace& place) {
  if (operation == "==") return equal(a, b);
  if (operation == "!=") return !equal(a, b);
  if (operation == "in") return contains(b, a, place);
  if (operation == "not in") return !contains(b, a, place);
  if (operation == "~") return joined(printed(a, place), printed(b, place), place);
  if (operation[0] == '<' || operation[0] == '>') return less(operation, a, b, place);
  return arithmetic(operation, a, b, place);
}

}  // namespace maestro
