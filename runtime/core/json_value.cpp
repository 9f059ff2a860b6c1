// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/json_value.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

template <class Number>
std::string whole_range(Number low, Number high) {
  const bool open = high == std::numeric_limits<Number>::max();
  return "a whole number from " + std::to_string(low) + (open ? " on" : " to " + std::to_string(high));
}

}  // namespace

const nlohmann::json& JsonValue::json() const {
  static const nlohmann::json nothing;
  return value_ == nullptr ? nothing : *value_;
}

std::string JsonValue::place() const {
  return *file_ + (path_.empty() ? "" : ": " + path_);
}

void JsonValue::fail(const std::string& problem) const {
  throw JobError(place() + ": " + problem);
}

void JsonValue::refuse(const std::string& reason) const {
  throw JobError(place() + (value_ == nullptr ? " (absent) " : " = " + shown(*value_) + " ") + reason);
}

void JsonValue::refuse_choice(std::span<const std::string> supported) const {
  std::string names;
  for (const std::string& name : supported) names += (names.empty() ? "" : ", ") + name;
  refuse("is not supported; these are: " + names);
}

void JsonValue::expected(const std::string& what) const {
  if (value_ == nullptr) throw JobError(place() + " is missing");
  fail("expected " + what + ", got " + shown(*value_));
}

JsonValue JsonValue::at(std::string_view key) const {
  if (!json().is_object()) expected("an object");
  JsonValue member = *this;
  const auto found = value_->find(key);
  member.value_ = found == value_->end() ? nullptr : &*found;
  member.path_ = join_json_path(path_, key);
  return member;
}

JsonValue JsonValue::find(std::string_view key) const {
  JsonValue member = at(key);
  if (member.null()) member.value_ = nullptr;
  return member;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  if (!json().is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonValue>> all;
  for (const auto& [key, value] : value_->items()) {
    all.emplace_back(key, JsonValue(value, *file_, join_json_path(path_, key)));
  }
  return all;
}

std::vector<JsonValue> JsonValue::items() const {
  if (!json().is_array()) expected("a list");
  std::vector<JsonValue> all;
  for (std::size_t at = 0; at < value_->size(); ++at) {
    all.emplace_back((*value_)[at], *file_, path_ + "[" + std::to_string(at) + "]");
  }
  return all;
}

void JsonValue::allow_keys(std::initializer_list<std::string_view> keys) const {
  const std::vector<std::string> names(keys.begin(), keys.end());
  for (const auto& [key, value] : members()) {
    if (std::ranges::find(names, key) == names.end()) value.fail("unknown key" + nearest_text(key, names));
  }
}

std::string JsonValue::text(std::optional<std::string> absent) const {
  if (value_ == nullptr && absent) return *std::move(absent);
  if (!json().is_string()) expected("a string");
  return value_->get<std::string>();
}

std::vector<std::string> JsonValue::texts() const {
  std::vector<std::string> all;
  for (const JsonValue& item : items()) all.push_back(item.text());
  return all;
}

std::map<std::string, std::string> JsonValue::texts_by_key() const {
  std::map<std::string, std::string> all;
  for (const auto& [key, value] : members()) all.emplace(key, value.text());
  return all;
}

bool JsonValue::flag(std::optional<bool> absent) const {
  if (value_ == nullptr && absent) return *absent;
  if (!json().is_boolean()) expected("true or false");
  return value_->get<bool>();
}

std::int64_t JsonValue::whole_number(std::int64_t low, std::int64_t high, std::optional<std::int64_t> absent) const {
  if (value_ == nullptr && absent) return *absent;
  const bool beyond = json().is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  if (!json().is_number_integer() || beyond) expected(whole_range(low, high));
  const auto number = value_->get<std::int64_t>();
  if (number < low || number > high) expected(whole_range(low, high));
  return number;
}

std::uint64_t JsonValue::count(std::uint64_t most, std::optional<std::uint64_t> absent) const {
  if (value_ == nullptr && absent) return *absent;
  if (!json().is_number_unsigned() || value_->get<std::uint64_t>() > most)
    expected(whole_range(std::uint64_t{0}, most));
  return value_->get<std::uint64_t>();
}

double JsonValue::number(double low, double high) const {
  const auto range = [&] {
    const std::string from = std::isinf(low) ? "" : " from " + number_text(low);
    return "a number" + from + (std::isinf(high) ? from.empty() ? "" : " on" : " to " + number_text(high));
  };
  if (!json().is_number()) expected(range());
  const auto number = value_->get<double>();
  if (!(number >= low && number <= high)) expected(range());
  return number;
}

double JsonValue::positive(std::optional<double> absent) const {
  if (value_ == nullptr && absent) return *absent;
  if (!json().is_number() || !(value_->get<double>() > 0)) expected("a number above 0");
  return value_->get<double>();
}

}  // namespace maestro
