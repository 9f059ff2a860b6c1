// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_call.hpp"

#include "runtime/core/printable.hpp"

namespace maestro {

using Value = TemplateValue;

const Value* TemplateArguments::find(std::string_view name) const {
  const auto found = std::ranges::find_if(named, [&](const auto& each) { return each.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

std::string TemplateCall::title() const {
  return std::string(kind_) + " " + printable(name_);
}

const Value& TemplateCall::operand() const {
  if (arguments_->values.empty()) fail("has no operand");
  return arguments_->values[0];
}

bool TemplateCall::has(std::size_t index, std::string_view name) const {
  return index < arguments_->values.size() || arguments_->find(name) != nullptr;
}

Value TemplateCall::argument(std::size_t index, const Value& absent, std::string_view name) const {
  if (index < arguments_->values.size()) return arguments_->values[index];
  const Value* found = arguments_->find(name);
  return found == nullptr ? absent : *found;
}

void TemplateCall::takes(std::size_t most, std::initializer_list<std::string_view> names) const {
  if (arguments_->values.size() > most) fail("has too many arguments");
  for (const auto& [name, value] : arguments_->named) {
    if (std::ranges::find(names, name) == names.end()) {
      fail_template(place_, "the " + title() + " does not take the argument " + printable(name));
    }
  }
}

void TemplateCall::check_length(const std::string& text) const {
  if (text.size() > longest_template_text) fail("makes a text longer than 16 MiB");
}

const std::string& TemplateCall::text_of(const Value& value) const {
  if (!value.is_text()) fail("takes a text, not " + kind_of(value));
  return value.text();
}

std::string TemplateCall::text_argument(std::size_t index, const Value& absent, std::string_view name) const {
  return text_of(argument(index, absent, name));
}

std::int64_t TemplateCall::whole_argument(std::size_t index, const Value& absent, std::string_view name) const {
  const Value value = argument(index, absent, name);
  if (!value.is_whole()) fail("takes a whole number, not " + kind_of(value));
  return value.whole();
}

}  // namespace maestro
