// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "runtime/chat/template_objects.hpp"
#include "runtime/chat/template_text.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Kind = TemplateValue::Kind;

namespace {

constexpr std::size_t weight_of_node = 64;
constexpr std::size_t many_keys = 16;

std::size_t added(std::size_t a, std::size_t b) {  // a list that holds a list twice, 64 times, has 2^64 elements
  constexpr std::size_t most = std::size_t{1} << 40;
  return std::min(most, a + b);
}

bool same_elements(const Values& a, const Values& b, const TemplatePlace& place) {
  return std::ranges::equal(a, b, [&](const Value& left, const Value& right) { return equal(left, right, place); });
}

bool same_pairs(const TemplateMapping& a, const TemplateMapping& b, const TemplatePlace& place) {
  if (a.pairs().size() != b.pairs().size()) return false;
  return std::ranges::all_of(a.pairs(), [&](const TemplateMapping::Pair& pair) {
    const Value* other = b.find(pair.first);
    return other != nullptr && equal(pair.second, *other, place);
  });
}

void check_size(const Value& value, const TemplatePlace& place) {
  if (value.weight() > 4 * longest_template_text)
    fail_template(place, "a value is too large to be compared or printed");
}

std::string list_repr(const Values& values, const TemplatePlace& place, int level) {
  std::string text;
  for (const Value& each : values) text += (text.empty() ? "" : ", ") + repr_of(each, place, level + 1);
  return text;
}

}  // namespace

Value::TemplateValue(std::string value)
    : kind_(Kind::text), data_(std::make_shared<const std::string>(std::move(value))) {}

Value::TemplateValue(TemplateMapping value)
    : kind_(Kind::mapping), data_(std::make_shared<const TemplateMapping>(std::move(value))) {}

Value Value::undefined() {
  Value made;
  made.kind_ = Kind::undefined;
  return made;
}

Value Value::markup(std::string value) {
  Value made(std::move(value));
  made.markup_ = true;
  return made;
}

Value Value::sequence(Kind kind, Values values, std::string name) {
  Value made;
  made.kind_ = kind;
  std::size_t weight = weight_of_node;
  int depth = 0;
  for (const Value& each : values) {
    weight = added(weight, each.weight());
    depth = std::max(depth, each.depth());
  }
  made.data_ =
      std::make_shared<const TemplateSequence>(TemplateSequence{std::move(values), std::move(name), weight, depth + 1});
  return made;
}

Value Value::iterator(Values values) {
  Value made;
  made.kind_ = Kind::iterator;
  const int depth = Value::list(values).depth();
  made.data_ = std::make_shared<TemplateIterator>(TemplateIterator{std::move(values), 0, depth});
  return made;
}

Value Value::method(Value receiver, std::string name) {
  Value made;
  made.kind_ = Kind::method;
  made.data_ = std::make_shared<const TemplateMethod>(TemplateMethod{std::move(receiver), std::move(name)});
  return made;
}

const Values& Value::elements() const {
  return std::get<Elements>(data_)->values;
}

const std::string& Value::type_name() const {
  return std::get<Elements>(data_)->name;
}

bool Value::same_as(const Value& other) const {
  return kind_ == other.kind_ && data_ == other.data_;
}

std::size_t Value::weight() const {
  if (is_text()) return weight_of_node + text().size();
  if (has_elements()) return std::get<Elements>(data_)->weight;
  return is_mapping() ? added(weight_of_node, mapping().weight()) : weight_of_node;
}

int Value::depth() const {
  if (has_elements()) return std::get<Elements>(data_)->depth;
  if (kind_ == Kind::method) return method().receiver.depth() + 1;
  if (kind_ == Kind::iterator) return iterator().depth;
  return is_mapping() ? mapping().depth() + 1 : 0;
}

void TemplateMapping::set(Value key, Value value) {
  weight_ = added(weight_, key.weight() + value.weight());
  depth_ = std::max({depth_, key.depth(), value.depth()});
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);  // NOLINT: an element of pairs_, which is not const here
    return;
  }
  pairs_.emplace_back(std::move(key), std::move(value));
  if (pairs_.size() < many_keys) return;
  for (std::size_t i = pairs_.size() == many_keys ? 0 : pairs_.size() - 1; i < pairs_.size(); ++i) {
    if (pairs_[i].first.is_text()) places_.emplace(pairs_[i].first.text(), i);
  }
}

const Value* TemplateMapping::find(std::string_view key) const {
  if (pairs_.size() >= many_keys) {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &pairs_[found->second].second;
  }
  for (const auto& [each, value] : pairs_) {
    if (each.is_text() && each.text() == key) return &value;
  }
  return nullptr;
}

const Value* TemplateMapping::find(const Value& key) const {
  if (key.is_text()) return find(std::string_view(key.text()));
  for (const auto& [each, value] : pairs_) {
    if (!each.is_text() && equal(each, key, {})) return &value;
  }
  return nullptr;
}

std::string kind_of(const Value& value) {
  constexpr std::array<const char*, 14> names{"an undefined value",
                                              "none",
                                              "a truth value",
                                              "a number",
                                              "a number",
                                              "a text",
                                              "a list",
                                              "a tuple",
                                              "a view",
                                              "a range",
                                              "a mapping",
                                              "an iterator",
                                              "a method",
                                              "an object"};
  return names[static_cast<std::size_t>(value.kind())];
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.real() != 0;
  if (value.is_text()) return !value.text().empty();
  if (value.has_elements()) return !value.elements().empty();
  return !value.is_mapping() || !value.mapping().pairs().empty();
}

bool equal(const Value& a, const Value& b, const TemplatePlace& place) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.kind() != b.kind()) return false;
  if (a.is_text()) return a.text() == b.text();
  if (a.is_undefined() || a.same_as(b)) return true;
  if (!a.has_elements() && !a.is_mapping()) return false;
  check_size(a, place);
  check_size(b, place);
  return a.is_mapping() ? same_pairs(a.mapping(), b.mapping(), place)
                        : same_elements(a.elements(), b.elements(), place);
}

std::string number_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> digits{};
  const auto all = [&](std::chars_format format) {
    return std::string(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, format).ptr);
  };
  const double size = std::fabs(value);
  if (size != 0 && (size < 1e-4 || size >= 1e16)) return all(std::chars_format::scientific);
  const std::string text = all(std::chars_format::fixed);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string repr_of(const Value& value, const TemplatePlace& place, int level) {
  if (level > most_template_levels) fail_template(place, "a value is nested deeper than 64 levels");
  if (level == 0) check_size(value, place);
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.whole() != 0 ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.whole());
    case Kind::real:
      return number_repr(value.real());
    case Kind::text:
      return (value.is_markup() ? "Markup(" : "") + text_repr(value.text()) + (value.is_markup() ? ")" : "");
    case Kind::list:
      return "[" + list_repr(value.elements(), place, level) + "]";
    case Kind::tuple:
      return "(" + list_repr(value.elements(), place, level) + (value.elements().size() == 1 ? ",)" : ")");
    case Kind::view:
      return value.type_name() + "([" + list_repr(value.elements(), place, level) + "])";
    case Kind::range:
      return value.type_name();
    case Kind::mapping: {
      std::string text;
      for (const auto& [key, each] : value.mapping().pairs()) {
        text += (text.empty() ? "" : ", ") + repr_of(key, place, level + 1) + ": " + repr_of(each, place, level + 1);
      }
      return "{" + text + "}";
    }
    case Kind::object:
      return object_repr(*value.object(), place);
    default:
      refuse_template(place, "the output of " + kind_of(value));
  }
}

std::string printed(const Value& value, const TemplatePlace& place) {
  if (value.is_text()) return value.text();
  return value.is_undefined() ? "" : repr_of(value, place);
}

Values elements_of(const Value& value, const TemplatePlace& place) {
  if (value.is_undefined()) return {};
  if (value.has_elements()) return value.elements();
  if (value.is_text()) return characters_of(value.text());
  if (value.is(Kind::iterator)) {
    TemplateIterator& read = value.iterator();
    const auto begin = read.values.begin() + static_cast<std::ptrdiff_t>(std::exchange(read.next, read.values.size()));
    return {begin, read.values.end()};
  }
  if (!value.is_mapping()) fail_template(place, "a loop goes over a list, not over " + kind_of(value));
  Values keys;
  for (const auto& [key, unused] : value.mapping().pairs()) keys.push_back(key);
  return keys;
}

}  // namespace maestro
