// SPDX-License-Identifier: Apache-2.0
// Operators, items and slices of template values.
#include <algorithm>
#include <cmath>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_objects.hpp"
#include "runtime/chat/template_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Kind = TemplateValue::Kind;

namespace {

constexpr std::size_t most_elements = 1'000'000;

[[noreturn]] void refuse_operands(std::string_view operation, const Value& a, const Value& b,
                                  const TemplatePlace& place) {
  fail_template(place, "\"" + std::string(operation) + "\" does not take " + kind_of(a) + " and " + kind_of(b));
}

Value joined(const Value& a, const Value& b, const TemplatePlace& place) {
  const bool safe = a.is_markup() || b.is_markup();
  const auto part = [&](const Value& value) {
    return safe && !value.is_markup() ? escaped_html(value.text()) : value.text();
  };
  if (a.text().size() + b.text().size() > longest_template_text) fail_template(place, "a text is longer than 16 MiB");
  std::string text = part(a) + part(b);
  return safe ? Value::markup(std::move(text)) : Value(std::move(text));
}

Value concatenated(const Value& a, const Value& b, const TemplatePlace& place) {
  if (a.elements().size() + b.elements().size() > most_elements) {
    fail_template(place, "a list has more than 1,000,000 elements");
  }
  Values sum = a.elements();
  sum.insert(sum.end(), b.elements().begin(), b.elements().end());
  return Value::sequence(a.kind(), std::move(sum));
}

Value repeated(const Value& value, std::int64_t times, const TemplatePlace& place) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.is_text()) {
    if (count > longest_template_text || value.text().size() * count > longest_template_text) {
      fail_template(place, "a text is longer than 16 MiB");
    }
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += value.text();
    return value.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
  }
  if (count > most_elements || value.elements().size() * count > most_elements) {
    fail_template(place, "a list has more than 1,000,000 elements");
  }
  Values made;
  for (std::size_t i = 0; i < count; ++i) made.insert(made.end(), value.elements().begin(), value.elements().end());
  return Value::sequence(value.kind(), std::move(made));
}

Value whole_power(std::int64_t base, std::int64_t exponent, const TemplatePlace& place) {
  if (exponent < 0) {
    if (base == 0) fail_template(place, "a division by zero");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t made = 1;
  for (std::int64_t i = 0; i < exponent && made != 0 && (base < -1 || base > 1); ++i) {
    if (__builtin_mul_overflow(made, base, &made)) fail_template(place, "a whole number is beyond 64 bits");
  }
  if (base == 0 && exponent > 0) return 0;
  return base == -1 && exponent % 2 != 0 ? Value(-1) : Value(made);
}

Value whole_numbers(std::string_view operation, std::int64_t a, std::int64_t b, const TemplatePlace& place) {
  if (operation == "**") return whole_power(a, b, place);
  std::int64_t made = 0;
  bool beyond = false;
  if (operation == "+") {
    beyond = __builtin_add_overflow(a, b, &made);
  } else if (operation == "-") {
    beyond = __builtin_sub_overflow(a, b, &made);
  } else if (operation == "*") {
    beyond = __builtin_mul_overflow(a, b, &made);
  } else if (b == 0) {
    fail_template(place, "a division by zero");
  } else if (operation == "/") {
    return static_cast<double>(a) / static_cast<double>(b);
  } else if (b == -1) {
    beyond = operation == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &made);
  } else {
    const std::int64_t down = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    made = operation == "//" ? down : a - down * b;
  }
  if (beyond) fail_template(place, "a whole number is beyond 64 bits");
  return made;
}

Value fractions(std::string_view operation, double a, double b, const TemplatePlace& place) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "**") {
    if (a < 0 && b != std::floor(b)) refuse_template(place, "a complex number");
    if (a == 0 && b < 0) fail_template(place, "a division by zero");
    const double made = std::pow(a, b);
    if (std::isinf(made) && !std::isinf(a) && !std::isinf(b)) fail_template(place, "a number is out of range");
    return made;
  }
  if (b == 0) fail_template(place, "a division by zero");
  if (operation == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (operation == "%") return rest == 0 ? std::copysign(0.0, b) : rest;
  const double down = (a - rest) / b;
  const double floor = std::floor(down);
  return down - floor > 0.5 ? floor + 1 : floor;
}

Value arithmetic(std::string_view operation, const Value& a, const Value& b, const TemplatePlace& place) {
  if (a.is_whole() && b.is_whole()) return whole_numbers(operation, a.whole(), b.whole(), place);
  if (a.is_number() && b.is_number()) return fractions(operation, a.real(), b.real(), place);
  if (operation == "+" && a.kind() == b.kind()) {
    if (a.is_text()) return joined(a, b, place);
    if (a.is(Kind::list) || a.is(Kind::tuple)) return concatenated(a, b, place);
  }
  const auto repeats = [](const Value& value) {
    return value.is_text() || value.is(Kind::list) || value.is(Kind::tuple);
  };
  if (operation == "*" && b.is_whole() && repeats(a)) return repeated(a, b.whole(), place);
  if (operation == "*" && a.is_whole() && repeats(b)) return repeated(b, a.whole(), place);
  if (operation == "%" && a.is_text()) {
    if (!a.is_markup()) return percent_formatted(a.text(), b, place);
    return Value::markup(percent_formatted(a.text(), as_escaped(b), place));
  }
  refuse_operands(operation, a, b, place);
}

/// Returns an index from the start: negative indices count from the end. Out-of-range indices stay out of range.
std::int64_t from_end(std::int64_t index, std::int64_t size) {
  return index < 0 ? index + size : index;
}

Value character_at_index(const std::string& text, std::int64_t index) {
  const bool ascii = is_ascii(text);
  const auto size = static_cast<std::int64_t>(ascii ? text.size() : length_of(text));
  index = from_end(index, size);
  if (index < 0 || index >= size) return Value::undefined();
  const auto at = static_cast<std::size_t>(index);
  return ascii ? Value(text.substr(at, 1)) : Value(text_of(points_of(text).substr(at, 1)));
}

Value element_at(const Value& container, const Value& key) {
  if (container.is_mapping()) {
    const Value* found = container.mapping().find(key);
    return found == nullptr ? Value::undefined() : *found;
  }
  if (!key.is_whole()) return Value::undefined();
  if (container.is_text()) return character_at_index(container.text(), key.whole());
  if (!container.has_elements() || container.is(Kind::view)) return Value::undefined();
  const auto size = static_cast<std::int64_t>(container.elements().size());
  const std::int64_t index = from_end(key.whole(), size);
  return index >= 0 && index < size ? container.elements()[static_cast<std::size_t>(index)] : Value::undefined();
}

/// Returns the positions of Python's slice.indices().
std::vector<std::size_t> positions_of(const Values& parts, std::int64_t size, const TemplatePlace& place) {
  for (std::size_t i = 1; i < 4; ++i) {
    if (!parts[i].is_none() && !parts[i].is_whole()) fail_template(place, "a bound is " + kind_of(parts[i]));
  }
  const std::int64_t step = parts[3].is_none() ? 1 : parts[3].whole();
  if (step == 0) fail_template(place, "a slice has the step 0");
  // The position before the first element is 0 or, with a negative step, -1.
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, std::int64_t absent) {
    return given.is_none() ? absent : std::clamp(from_end(given.whole(), size), low, high);
  };
  const std::int64_t begin = bound(parts[1], step > 0 ? low : high), end = bound(parts[2], step > 0 ? high : low);
  std::vector<std::size_t> made;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    made.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return made;
}

template <class T>
bool in_order(std::string_view operation, const T& a, const T& b) {
  if (operation == "<") return a < b;
  if (operation == ">") return a > b;
  return operation == "<=" ? a <= b : a >= b;
}

}  // namespace

Value attribute_of(const Value& container, const std::string& name, const TemplatePlace& place) {
  if (container.is_undefined()) {
    fail_template(place, "\"" + printable(name) + "\" is asked of an undefined value");
  }
  if (container.is(Kind::object)) return object_attribute(*container.object(), name);
  if (has_method(container, name)) return Value::method(container, name);
  return element_at(container, Value(name));
}

Value item_of(const Value& container, const Value& key, const TemplatePlace& place) {
  if (container.is_undefined()) {
    fail_template(place, (key.is_text() ? "\"" + printable(key.text()) + "\"" : repr_of(key, place)) +
                             " is asked of an undefined value");
  }
  Value found = element_at(container, key);
  if (!found.is_undefined() || !key.is_text()) return found;
  return attribute_of(container, key.text(), place);
}

Value path_of(const Value& container, const Value& path, const TemplatePlace& place) {
  if (!path.is_text()) return item_of(container, path, place);
  Value found = container;
  const std::string& names = path.text();
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool index = !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    found = item_of(found, index ? number_in(name, false) : Value(name), place);
    begin = end + 1;
  }
  return found;
}

Value slice_of(const Values& parts, const TemplatePlace& place) {
  const Value& container = parts[0];
  if (container.is_text()) {
    const std::u32string points = points_of(container.text());
    std::u32string made;
    for (const std::size_t at : positions_of(parts, static_cast<std::int64_t>(points.size()), place))
      made += points[at];
    return container.is_markup() ? Value::markup(text_of(made)) : Value(text_of(made));
  }
  if (!container.has_elements() || container.is(Kind::view)) fail_template(place, "a slice of " + kind_of(container));
  Values made;
  const Values& elements = container.elements();
  for (const std::size_t at : positions_of(parts, static_cast<std::int64_t>(elements.size()), place)) {
    made.push_back(elements[at]);
  }
  if (container.is(Kind::range)) refuse_template(place, "a slice of a range");
  return Value::sequence(container.kind(), std::move(made));
}

bool contains(const Value& container, const Value& value, const TemplatePlace& place) {
  if (container.is_text() && value.is_text()) return container.text().find(value.text()) != std::string::npos;
  if (container.is_mapping()) return container.mapping().find(value) != nullptr;
  if (container.is_text() ||
      (!container.is_undefined() && !container.has_elements() && !container.is(Kind::iterator))) {
    refuse_operands("in", value, container, place);
  }
  return std::ranges::any_of(elements_of(container, place),
                             [&](const Value& each) { return equal(each, value, place); });
}

Value compared(std::string_view operation, const Value& a, const Value& b, const TemplatePlace& place) {
  if (operation == "==") return equal(a, b, place);
  if (operation == "!=") return !equal(a, b, place);
  if (operation == "in") return contains(b, a, place);
  if (operation == "not in") return !contains(b, a, place);
  if (a.is_whole() && b.is_whole()) return in_order(operation, a.whole(), b.whole());
  if (a.is_number() && b.is_number()) return in_order(operation, a.real(), b.real());
  if (a.is_text() && b.is_text()) return in_order(operation, a.text(), b.text());
  if (a.kind() != b.kind() || !(a.is(Kind::list) || a.is(Kind::tuple))) refuse_operands(operation, a, b, place);
  const Values &left = a.elements(), &right = b.elements();
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!equal(left[i], right[i], place)) return compared(operation, left[i], right[i], place);
  }
  return in_order(operation, left.size(), right.size());
}

Value negated(const Value& value, const TemplatePlace& place) {
  if (value.is(Kind::real)) return -value.real();
  if (!value.is_whole()) fail_template(place, "\"-\" does not take " + kind_of(value));
  return whole_numbers("-", 0, value.whole(), place);
}

Value binary_value(std::string_view operation, const Value& a, const Value& b, const TemplatePlace& place) {
  if (operation == "~") return joined(Value(printed(a, place)), Value(printed(b, place)), place);
  return arithmetic(operation, a, b, place);
}

}  // namespace maestro
