// SPDX-License-Identifier: Apache-2.0
// Filters of lists and mappings.
#include <algorithm>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_text.hpp"

namespace maestro {

using Value = TemplateValue;
using Values = TemplateValues;
using Call = TemplateCall;
using Kind = TemplateValue::Kind;

namespace {

constexpr std::size_t most_elements = 1'000'000;

Values elements(const Call& call) {
  return elements_of(call.operand(), call.place());
}

Value length(const Call& call) {
  call.takes(1);
  const Value& value = call.operand();
  if (value.is_undefined()) return 0;
  if (value.is_text()) return length_of(value.text());
  if (value.is_mapping()) return value.mapping().pairs().size();
  if (!value.has_elements()) call.fail("takes a text, a list or a mapping, not " + kind_of(value));
  return value.elements().size();
}

Value first(const Call& call) {
  call.takes(1);
  if (call.operand().is(Kind::iterator)) {
    TemplateIterator& read = call.operand().iterator();
    return read.next < read.values.size() ? read.values[read.next++] : Value::undefined();
  }
  const Values all = elements(call);
  return all.empty() ? Value::undefined() : all.front();
}
Value last(const Call& call) {
  call.takes(1);
  if (call.operand().is(Kind::iterator)) call.fail("takes no iterator");
  const Values all = elements(call);
  return all.empty() ? Value::undefined() : all.back();
}

Value join(const Call& call) {
  call.takes(3, {"d", "attribute"});
  const std::string between = printed(call.argument(1, "", "d"), call.place());
  const Value attribute = call.argument(2, Value(), "attribute");
  std::string text;
  bool begins = true;
  for (const Value& each : elements(call)) {
    text += (begins ? "" : between) +
            printed(attribute.is_none() ? each : path_of(each, attribute, call.place()), call.place());
    begins = false;
    call.check_length(text);
  }
  return text;
}

Value list(const Call& call) {
  call.takes(1);
  return Value::list(elements(call));
}

Value items(const Call& call) {
  call.takes(1);
  if (call.operand().is_undefined()) return Value::iterator({});
  if (!call.operand().is_mapping()) call.fail("takes a mapping, not " + kind_of(call.operand()));
  Values made;
  for (const auto& [key, value] : call.operand().mapping().pairs()) made.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(made));
}

/// Returns an element's key for sorting or distinguishing: itself or an attribute, texts without case unless it counts.
Value key_of(const Call& call, const Value& element, const Value& attribute, bool case_sensitive) {
  const Value key = attribute.is_none() ? element : path_of(element, attribute, call.place());
  return key.is_text() && !case_sensitive ? Value(with_case(key.text(), CaseKind::lower)) : key;
}

/// Returns the elements in the order of their keys.
Values sorted(const Call& call, const Values& all, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return is_true(reverse ? compared("<", keys[b], keys[a], call.place())
                           : compared("<", keys[a], keys[b], call.place()));
  });
  Values made;
  for (const std::size_t i : order) made.push_back(all[i]);
  return made;
}

Value sort(const Call& call) {
  call.takes(4, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = is_true(call.argument(2, false, "case_sensitive"));
  const Value attribute = call.argument(3, Value(), "attribute");
  Values paths{attribute};
  if (attribute.is_text()) paths = method_value("split", {{attribute, ","}, {}}, call.place()).elements();
  const Values all = elements(call);
  std::vector<Value> keys;
  for (const Value& each : all) {
    Values parts;
    for (const Value& path : paths) parts.push_back(key_of(call, each, path, case_sensitive));
    keys.push_back(Value::tuple(std::move(parts)));
  }
  return Value::list(sorted(call, all, keys, is_true(call.argument(1, false, "reverse"))));
}

Value dictsort(const Call& call) {
  call.takes(4, {"case_sensitive", "by", "reverse"});
  if (!call.operand().is_mapping()) call.fail("takes a mapping, not " + kind_of(call.operand()));
  const std::string by = call.text_argument(2, "key", "by");
  if (by != "key" && by != "value") call.fail("sorts by \"key\" or \"value\"");
  const bool case_sensitive = is_true(call.argument(1, false, "case_sensitive"));
  Values all;
  std::vector<Value> keys;
  for (const auto& [key, value] : call.operand().mapping().pairs()) {
    all.push_back(Value::tuple({key, value}));
    keys.push_back(key_of(call, by == "key" ? key : value, Value(), case_sensitive));
  }
  return Value::list(sorted(call, all, keys, is_true(call.argument(3, false, "reverse"))));
}

Value reverse(const Call& call) {
  call.takes(1);
  if (call.operand().is_text()) {
    std::u32string points = points_of(call.text());
    std::ranges::reverse(points);
    return text_of(points);
  }
  Values all = elements(call);
  std::ranges::reverse(all);
  return call.operand().is(Kind::iterator) ? Value::list(std::move(all)) : Value::iterator(std::move(all));
}

Value unique(const Call& call) {
  call.takes(3, {"case_sensitive", "attribute"});
  const bool case_sensitive = is_true(call.argument(1, false, "case_sensitive"));
  TemplateMapping seen;
  Values made;
  for (const Value& each : elements(call)) {
    Value key = key_of(call, each, call.argument(2, Value(), "attribute"), case_sensitive);
    if (key.is(Kind::list) || key.is_mapping()) call.fail("does not take " + kind_of(key));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), true);
    made.push_back(each);
  }
  return Value::iterator(std::move(made));
}

Value sum(const Call& call) {
  call.takes(3, {"attribute", "start"});
  const Value attribute = call.argument(1, Value(), "attribute");
  Value made = call.argument(2, 0, "start");
  if (made.is_text()) call.fail("does not take texts");
  for (const Value& each : elements(call)) {
    made = binary_value("+", made, attribute.is_none() ? each : path_of(each, attribute, call.place()), call.place());
  }
  return made;
}

template <bool least>
Value extreme(const Call& call) {
  call.takes(3, {"case_sensitive", "attribute"});
  const bool case_sensitive = is_true(call.argument(1, false, "case_sensitive"));
  const Value attribute = call.argument(2, Value(), "attribute");
  Value found = Value::undefined(), key;
  bool begins = true;
  for (const Value& each : elements(call)) {
    const Value other = key_of(call, each, attribute, case_sensitive);
    if (begins || is_true(compared(least ? "<" : ">", other, key, call.place()))) {
      found = each;
      key = other;
    }
    begins = false;
  }
  return found;
}

Value batch(const Call& call) {
  call.takes(3, {"linecount", "fill_with"});
  const std::int64_t size = call.whole_argument(1, Value(), "linecount");
  const Value fill = call.argument(2, Value(), "fill_with");
  if (size < 1 || size > 100'000) call.fail("takes a size from 1 to 100,000");
  Values made, part;
  for (const Value& each : elements(call)) {
    if (static_cast<std::int64_t>(part.size()) == size) made.push_back(Value::list(std::exchange(part, {})));
    part.push_back(each);
  }
  if (!part.empty()) {
    if (!fill.is_none()) part.resize(static_cast<std::size_t>(size), fill);
    made.push_back(Value::list(std::move(part)));
  }
  return Value::iterator(std::move(made));
}

Value slice(const Call& call) {
  call.takes(3, {"slices", "fill_with"});
  const std::int64_t count = call.whole_argument(1, Value(), "slices");
  const Value fill = call.argument(2, Value(), "fill_with");
  if (count < 1 || count > 100'000) call.fail("takes a number from 1 to 100,000");
  const Values all = elements(call);
  const std::size_t slices = static_cast<std::size_t>(count), each = all.size() / slices, longer = all.size() % slices;
  Values made;
  for (std::size_t i = 0, at = 0; i < slices; ++i) {
    const std::size_t size = each + (i < longer ? 1 : 0);
    Values part(all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(at + size));
    if (!fill.is_none() && i >= longer) part.push_back(fill);
    made.push_back(Value::list(std::move(part)));
    at += size;
  }
  return Value::iterator(std::move(made));
}

}  // namespace

const TemplateTable& sequence_filters() {
  static const TemplateTable table{
      {"length", length},     {"count", length},       {"first", first},   {"last", last},
      {"join", join},         {"list", list},          {"items", items},   {"sort", sort},
      {"dictsort", dictsort}, {"reverse", reverse},    {"unique", unique}, {"sum", sum},
      {"min", extreme<true>}, {"max", extreme<false>}, {"batch", batch},   {"slice", slice}};
  return table;
}

}  // namespace maestro
