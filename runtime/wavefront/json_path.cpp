// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/json_path.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/json_text.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr double longest_ms = 1e9;  // 11 days; sums of more would lose the microseconds

std::string listed(std::span<const std::string> names) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t at = 0; at < std::min(names.size(), most); ++at) text += (at > 0 ? ", " : "") + printable(names[at]);
  return names.size() > most ? text + ", ..." : text;
}

}  // namespace

std::string nearest_text(std::string_view name, std::span<const std::string> known) {
  if (const auto near = nearest_name(name, known)) return "; did you mean '" + printable(*near) + "'?";
  return known.empty() ? std::string() : "; there are: " + listed(known);
}

void JsonPath::fail(const std::string& problem) const {
  throw JobError(*file_name_ + ": " + (path_.empty() ? "" : path_ + ": ") + problem);
}

void JsonPath::expected(std::string_view what) const {
  fail("expected " + std::string(what) + ", got " + shown(*value_));
}

void JsonPath::allow_keys(std::initializer_list<std::string_view> keys) const {
  const std::vector<std::string> names(keys.begin(), keys.end());
  for (const auto& [key, value] : members()) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      value.fail("unknown key" + nearest_text(key, names));
    }
  }
}

JsonPath JsonPath::required(std::string_view key) const {
  if (auto found = optional(key)) return *std::move(found);
  fail("'" + std::string(key) + "' is missing");
}

std::optional<JsonPath> JsonPath::optional(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) return std::nullopt;
  return JsonPath(*found, *file_name_, join_json_path(path_, key));
}

std::vector<std::pair<std::string, JsonPath>> JsonPath::members() const {
  if (!value_->is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonPath>> all;
  for (const auto& [key, value] : value_->items()) {
    all.emplace_back(key, JsonPath(value, *file_name_, join_json_path(path_, key)));
  }
  return all;
}

bool JsonPath::is_list() const {
  return value_->is_array();
}

bool JsonPath::is_null() const {
  return value_->is_null();
}

std::vector<JsonPath> JsonPath::items() const {
  if (!value_->is_array()) expected("a list");
  std::vector<JsonPath> all;
  for (std::size_t at = 0; at < value_->size(); ++at) {
    all.emplace_back((*value_)[at], *file_name_, path_ + "[" + std::to_string(at) + "]");
  }
  return all;
}

std::string JsonPath::text() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

std::int64_t JsonPath::whole_number(std::int64_t low, std::int64_t high) const {
  const std::string range = "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (!value_->is_number_integer()) expected(range);
  const bool beyond =
      value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t number = beyond ? 0 : value_->get<std::int64_t>();
  if (beyond || number < low || number > high) expected(range);
  return number;
}

double JsonPath::number(double low, double high) const {
  const std::string range = "a number from " + number_text(low) + " to " + number_text(high);
  if (!value_->is_number()) expected(range);
  const double number = value_->get<double>();
  if (!(number >= low && number <= high)) expected(range);
  return number;
}

double JsonPath::milliseconds() const {
  if (!value_->is_number()) expected("a time in milliseconds");
  const double number = value_->get<double>();
  if (!std::isfinite(number) || number < 0 || number > longest_ms) expected("a time from 0 to 1e9 milliseconds");
  return number;
}

}  // namespace maestro
