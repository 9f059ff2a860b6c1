// SPDX-License-Identifier: Apache-2.0
// Python's str.format() and text % values.
#include <cmath>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_specification.hpp"
#include "runtime/chat/template_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;

namespace {

/// Returns format(value, specification).
std::string formatted_value(const Value& value, std::string_view text, const TemplatePlace& place) {
  if (text.empty()) return printed(value, place);
  FormatReader in(text, place);
  FormatSpecification how = specification_of(text, place);
  if (value.is_number()) {
    if (value.is_whole() && how.precision >= 0 && how.type != '\0' &&
        std::string_view("eEfFgG%").find(how.type) == std::string_view::npos) {
      in.fail("has a precision for a whole number");
    }
    return formatted_number(value, how, in);
  }
  if (!value.is_text()) in.fail("does not fit " + kind_of(value));
  if ((how.type != '\0' && how.type != 's') || how.align == '=' || how.grouping != '\0') {
    if (how.fill != "0" || how.align != '=') in.fail("does not fit a text");
    how.align = '<';
  }
  std::u32string points = points_of(value.text());
  if (how.precision >= 0) points.resize(std::min(points.size(), static_cast<std::size_t>(how.precision)));
  return padded("", text_of(points), how, '<');
}

/// Fields of a single str.format().
class Fields {
 public:
  explicit Fields(const TemplateCall& call) : call_(&call) {}

  std::string formatted(std::string_view format, int level = 0) {
    FormatReader in(format, call_->place());
    std::string made;
    while (!in.at_end()) {
      made += in.take_until("{}");
      if (in.at_end()) break;
      const char brace = in.take_any();
      if (in.take(brace)) {
        made += brace;
      } else if (brace == '}') {
        in.fail("has a } without its {");
      } else {
        made += field(in, level);
      }
      call_->check_length(made);
    }
    return made;
  }

 private:
  std::string field(FormatReader& in, int level) {
    if (level > 1) in.fail("nests its fields too deep");
    Value value = named(in);
    if (in.take('!')) {
      const char how = in.at_end() ? '\0' : in.take_any();
      if (how != 's' && how != 'r') in.fail("has an unknown conversion");
      value = how == 's' ? printed(value, call_->place()) : repr_of(value, call_->place());
    }
    std::string how;
    if (in.take(':')) {
      int open = 0;
      while (!in.at_end() && (open > 0 || in.peek() != '}')) {
        open += in.peek() == '{' ? 1 : in.peek() == '}' ? -1 : 0;
        how += in.take_any();
      }
      how = formatted(how, level + 1);
    }
    if (!in.take('}')) in.fail("has a { without its }");
    return formatted_value(value, how, call_->place());
  }
  Value named(FormatReader& in) {
    const std::string first(in.take_until(".[!:{}"));
    Value value = argument(first, in);
    while (true) {
      if (in.take('.')) {
        value = attribute_of(value, std::string(in.take_until(".[!:{}")), call_->place());
      } else if (in.take('[')) {
        const std::string key(in.take_until("]"));
        if (!in.take(']')) in.fail("has a [ without its ]");
        const bool index = !key.empty() && std::ranges::all_of(key, is_format_digit);
        value = item_of(value, index ? number_in(key, false) : Value(key), call_->place());
      } else {
        return value;
      }
    }
  }
  Value argument(const std::string& name, const FormatReader& in) {
    if (name.empty() || std::ranges::all_of(name, is_format_digit)) {
      const std::size_t index = name.empty()      ? next_++
                                : name.size() < 6 ? std::stoul(name)
                                                  : call_->arguments().values.size();
      if (index + 1 >= call_->arguments().values.size()) in.fail("has more fields than there are values");
      return call_->arguments().values[index + 1];
    }
    const Value* found = call_->arguments().find(name);
    if (found == nullptr) in.fail("has the field " + printable(name) + ", which is without a value");
    return *found;
  }

  const TemplateCall* call_;
  std::size_t next_ = 0;
};

/// Values of a single text % values.
class Percent {
 public:
  Percent(std::string_view format, const Value& values, const TemplatePlace& place)
      : in_(format, place), values_(&values), place_(place) {}

  std::string run() {
    std::string made;
    while (!in_.at_end()) {
      made += in_.take_until("%");
      if (in_.at_end()) break;
      in_.take_any();
      made += in_.take('%') ? "%" : field();
      if (made.size() > longest_template_text) in_.fail("makes a text longer than 16 MiB");
    }
    const bool all = values_->is_mapping() || keyed_ || used_ == count() || (used_ == 0 && is_unused());
    if (!all) in_.fail("does not use all values");
    return made;
  }

 private:
  [[nodiscard]] std::size_t count() const { return values_->is(Kind::tuple) ? values_->elements().size() : 1; }
  /// Returns whether the values are a list, which Python takes even if no field uses it.
  [[nodiscard]] bool is_unused() const { return values_->is(Kind::list) || values_->is(Kind::range); }
  const Value& next() {
    if (used_ >= count()) in_.fail("has more fields than there are values");
    const std::size_t at = used_++;
    return values_->is(Kind::tuple) ? values_->elements()[at] : *values_;
  }
  Value keyed() {
    if (!values_->is_mapping()) in_.fail("takes a mapping");
    const std::string key(in_.take_until(")"));
    if (!in_.take(')')) in_.fail("has a ( without its )");
    const Value* found = values_->mapping().find(std::string_view(key));
    if (found == nullptr) in_.fail("has the field " + printable(key) + ", which is without a value");
    keyed_ = true;
    return *found;
  }
  std::string field() {
    FormatSpecification how;
    const bool by_key = in_.take('(');
    const Value value = by_key ? keyed() : Value();
    for (bool flags = true; flags;) {
      if (in_.take('-')) {
        how.align = '<';
        how.fill = " ";
      } else if (in_.take('0')) {
        if (how.align != '<') how.align = '=', how.fill = "0";
      } else if (in_.take('#')) {
        how.alternate = true;
      } else if (in_.peek() == '+' || in_.peek() == ' ') {
        how.sign = how.sign == '+' ? in_.take_any(), '+' : in_.take_any();
      } else {
        flags = false;
      }
    }
    how.width = in_.take('*') ? star() : in_.take_number();
    if (in_.take('.')) how.precision = static_cast<int>(in_.take('*') ? star() : in_.take_number());
    while (in_.take('h') || in_.take('l') || in_.take('L')) {
    }
    if (in_.at_end()) in_.fail("ends inside of a field");
    how.type = in_.take_any();
    return converted(by_key ? value : next(), how);
  }
  std::size_t star() {
    const Value& width = next();
    if (!width.is_whole() || width.whole() < 0 || width.whole() > static_cast<std::int64_t>(most_format_width)) {
      in_.fail("has a width that is not a number up to 10,000");
    }
    return static_cast<std::size_t>(width.whole());
  }
  std::string converted(const Value& value, FormatSpecification how) {
    if (how.type == 's' || how.type == 'r' || how.type == 'a' || (how.type == 'c' && value.is_text())) {
      if (how.type == 'a') refuse_template(place_, "the format %a");
      std::u32string points = points_of(how.type == 'r' ? repr_of(value, place_) : printed(value, place_));
      if (how.type == 'c' && points.size() != 1) in_.fail("takes one character for %c");
      if (how.precision >= 0) points.resize(std::min(points.size(), static_cast<std::size_t>(how.precision)));
      if (how.align == '=') how.fill = " ", how.align = '>';
      return padded("", text_of(points), how, '>');
    }
    if (how.type == 'i' || how.type == 'u') how.type = 'd';
    if (std::string_view("dxXoceEfFgG").find(how.type) == std::string_view::npos || !value.is_number()) {
      in_.fail("does not take " + kind_of(value) + " for %" + printable(std::string(1, how.type)));
    }
    const bool whole = std::string_view("dxXoc").find(how.type) != std::string_view::npos;
    if (whole && value.is(Kind::real)) {
      const double number = std::trunc(value.real());
      if (how.type != 'd' || !(std::fabs(number) < 9e18)) in_.fail("does not take a fraction");
      return formatted_number(static_cast<std::int64_t>(number), how, in_);
    }
    return formatted_number(value, how, in_);
  }

  FormatReader in_;
  const Value* values_;
  TemplatePlace place_;
  std::size_t used_ = 0;
  bool keyed_ = false;
};

}  // namespace

Value formatted(const TemplateCall& call) {
  return Fields(call).formatted(call.text());
}

std::string percent_formatted(const std::string& format, const Value& values, const TemplatePlace& place) {
  return Percent(format, values, place).run();
}

}  // namespace maestro
