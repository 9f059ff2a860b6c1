// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_table.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_state.hpp"

namespace maestro {
namespace {

/// Returns the node at `path` and records the key as read; null when absent.
const toml::node* read(JobState& state, const JobPath& path) {
  state.read[JobPath(path.begin(), path.end() - 1)].insert(path.back());
  return state.find(path);
}

[[noreturn]] void refuse_type(const JobState& state, const JobPath& path, std::string_view expected,
                              const toml::node& found) {
  std::string message = "expected " + std::string(expected) + ", got " + describe(found);
  // `--set data.path=2024` reads as an integer; keys in a file need no such hint.
  const bool wants_quotes = expected == "a string" && found.is_value() && state.place_of(path).overridden;
  if (wants_quotes) message += "; put the value in double quotes to make it a string";
  state.fail(path, message);
}

/// Returns a text such as "from 1 to 64"; empty: every integer.
std::string range_text(Range range) {
  const bool below = range.min != Range{}.min, above = range.max != Range{}.max;
  if (below && above) return "from " + std::to_string(range.min) + " to " + std::to_string(range.max);
  if (below) return "at least " + std::to_string(range.min);
  return above ? "at most " + std::to_string(range.max) : "";
}

/// Converts a range; a missing bound stays missing.
NumberRange number_range(Range range) {
  NumberRange numbers;
  if (range.min > std::numeric_limits<std::int64_t>::min()) numbers.min = static_cast<double>(range.min);
  if (range.max < std::numeric_limits<std::int64_t>::max()) numbers.max = static_cast<double>(range.max);
  return numbers;
}

std::string range_text(NumberRange range) {
  std::string low, high;
  if (std::isfinite(range.min)) low = (range.min_open ? "greater than " : "at least ") + number_text(range.min);
  if (std::isfinite(range.max)) high = (range.max_open ? "less than " : "at most ") + number_text(range.max);
  if (low.empty() && high.empty()) return "finite";
  return low + (low.empty() || high.empty() ? "" : " and ") + high;
}

bool contains(NumberRange range, double value) {
  if (!std::isfinite(value)) return false;
  const bool above = range.min_open ? value > range.min : value >= range.min;
  const bool below = range.max_open ? value < range.max : value <= range.max;
  return above && below;
}

/// Returns the value of an integer or a floating-point number.
double number_of(const toml::node& number) {
  return number.is_integer() ? static_cast<double>(number.as_integer()->get()) : number.as_floating_point()->get();
}

/// Returns the text in quotes, as in TOML.
std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

/// Visits the elements of the list at `path`, if present. `take` returns false for an element of another type.
template <class Take>
void visit_list(JobState& state, const JobPath& path, const std::string& elements, const Take& take) {
  const toml::node* node = read(state, path);
  if (node == nullptr) return;
  if (!node->is_array()) refuse_type(state, path, "a list of " + elements, *node);
  std::size_t number = 0;
  for (const auto& element : *node->as_array()) {
    ++number;
    if (take(element)) continue;
    state.fail(path, "expected a list of " + elements + ", but element " + std::to_string(number) + " is " +
                         describe(element));
  }
}

std::vector<std::string> read_texts(JobState& state, const JobPath& path, std::vector<std::string> fallback) {
  if (state.find(path) != nullptr) fallback.clear();
  visit_list(state, path, "strings", [&](const toml::node& element) {
    if (element.is_string()) fallback.push_back(element.as_string()->get());
    return element.is_string();
  });
  return fallback;
}

}  // namespace

JobTable::JobTable(std::shared_ptr<JobState> state, std::vector<std::string> path)
    : state_(std::move(state)), path_(std::move(path)) {}

JobPath JobTable::path_to(std::string_view key) const {
  JobPath path = path_;
  path.emplace_back(key);
  return path;
}

void JobTable::declare(JobKey key, KeyHelp help) const {
  key.table = label_of(path_);
  key.help = help.text;
  key.unit = help.unit;
  const auto same = std::ranges::find_if(state_->declared, [&](const JobKey& declared) {
    return declared.table == key.table && declared.name == key.name;
  });
  if (same == state_->declared.end()) {
    state_->declared.push_back(std::move(key));
  } else if (same->help.empty() && !key.help.empty()) {  // a neighbour read it first, without help
    *same = std::move(key);
  }
}

std::int64_t JobTable::integer(std::string_view key, std::int64_t fallback, Range allowed, KeyHelp help) const {
  declare({.name = std::string(key),
           .type = "integer",
           .fallback = std::to_string(fallback),
           .allowed = range_text(allowed),
           .range = number_range(allowed)},
          help);
  const auto path = path_to(key);
  const auto* node = read(*state_, path);
  if (node == nullptr) return fallback;
  if (!node->is_integer()) refuse_type(*state_, path, "an integer", *node);
  const std::int64_t value = node->as_integer()->get();
  if (value < allowed.min || value > allowed.max) {
    state_->fail(path, "must be " + range_text(allowed) + ", got " + std::to_string(value));
  }
  return value;
}

std::int64_t JobTable::integer_or_word(std::string_view key, std::int64_t fallback, Range allowed,
                                       const std::vector<std::pair<std::string, std::int64_t>>& words,
                                       KeyHelp help) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : words) names.push_back(name);
  declare({.name = std::string(key),
           .type = "integer or choice",
           .fallback = std::to_string(fallback),
           .allowed = range_text(allowed) + "; " + listed(names),
           .range = number_range(allowed),
           .choices = names},
          help);
  if (!holds_text(key)) return integer(key, fallback, allowed);
  const std::string name = choice(key, {}, names);
  return std::ranges::find(words, name, &std::pair<std::string, std::int64_t>::first)->second;
}

double JobTable::number(std::string_view key, double fallback, NumberRange allowed, KeyHelp help) const {
  declare({.name = std::string(key),
           .type = "number",
           .fallback = number_text(fallback),
           .allowed = range_text(allowed),
           .range = allowed},
          help);
  const auto path = path_to(key);
  const auto* node = read(*state_, path);
  if (node == nullptr) return fallback;
  if (!node->is_number()) refuse_type(*state_, path, "a number", *node);
  const double value = number_of(*node);
  if (!contains(allowed, value)) state_->fail(path, "must be " + range_text(allowed) + ", got " + number_text(value));
  return value;
}

bool JobTable::flag(std::string_view key, bool fallback, KeyHelp help) const {
  declare({.name = std::string(key), .type = "true or false", .fallback = fallback ? "true" : "false"}, help);
  const auto path = path_to(key);
  const auto* node = read(*state_, path);
  if (node == nullptr) return fallback;
  if (!node->is_boolean()) refuse_type(*state_, path, "true or false", *node);
  return node->as_boolean()->get();
}

std::string JobTable::text(std::string_view key, std::string fallback, KeyHelp help) const {
  declare({.name = std::string(key), .type = "text", .fallback = quoted(fallback)}, help);
  const auto path = path_to(key);
  const auto* node = read(*state_, path);
  if (node == nullptr) return fallback;
  if (!node->is_string()) refuse_type(*state_, path, "a string", *node);
  return node->as_string()->get();
}

std::string JobTable::choice(std::string_view key, std::string fallback, const std::vector<std::string>& allowed,
                             KeyHelp help) const {
  declare({.name = std::string(key),
           .type = "choice",
           .fallback = quoted(fallback),
           .allowed = listed(allowed),
           .choices = allowed},
          help);
  if (!has(key)) return fallback;
  const auto value = text(key, {});
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  const auto near = nearest_name(value, allowed);
  fail(key, "\"" + printable(value) + "\" is not one of " + listed(allowed) +
                (near ? "; did you mean '" + *near + "'?" : ""));
}

std::vector<std::string> JobTable::texts(std::string_view key, std::vector<std::string> fallback, KeyHelp help) const {
  declare({.name = std::string(key), .type = "list of texts", .fallback = "[" + listed(fallback) + "]"}, help);
  return read_texts(*state_, path_to(key), std::move(fallback));
}

std::vector<std::string> JobTable::names(std::string_view key, const std::string& fallback, KeyHelp help) const {
  declare({.name = std::string(key), .type = "text or list of texts", .fallback = quoted(fallback)}, help);
  if (holds_text(key)) return {text(key, {})};
  return read_texts(*state_, path_to(key), {fallback});
}

std::vector<double> JobTable::numbers(std::string_view key, NumberRange allowed, KeyHelp help) const {
  declare({.name = std::string(key),
           .type = "list of numbers",
           .fallback = "[]",
           .allowed = range_text(allowed),
           .range = allowed},
          help);
  std::vector<double> out;
  visit_list(*state_, path_to(key), "numbers", [&](const toml::node& element) {
    if (!element.is_number()) return false;
    out.push_back(number_of(element));
    if (contains(allowed, out.back())) return true;
    fail(key, "element " + std::to_string(out.size()) + " must be " + range_text(allowed) + ", got " +
                  number_text(out.back()));
  });
  return out;
}

std::vector<double> JobTable::number_or_numbers(std::string_view key, double fallback, NumberRange allowed,
                                                KeyHelp help) const {
  declare({.name = std::string(key),
           .type = "number or list of numbers",
           .fallback = number_text(fallback),
           .allowed = range_text(allowed),
           .range = allowed},
          help);
  if (holds_list(key)) return numbers(key, allowed);
  return {number(key, fallback, allowed)};
}

std::vector<std::int64_t> JobTable::integers(std::string_view key, Range allowed, KeyHelp help) const {
  declare({.name = std::string(key),
           .type = "list of integers",
           .fallback = "[]",
           .allowed = range_text(allowed),
           .range = number_range(allowed)},
          help);
  std::vector<std::int64_t> out;
  visit_list(*state_, path_to(key), "integers", [&](const toml::node& element) {
    if (!element.is_integer()) return false;
    out.push_back(element.as_integer()->get());
    if (out.back() >= allowed.min && out.back() <= allowed.max) return true;
    fail(key, "element " + std::to_string(out.size()) + " must be " + range_text(allowed) + ", got " +
                  std::to_string(out.back()));
  });
  return out;
}

NumberPairs JobTable::pairs_or_word(std::string_view key, const std::vector<std::pair<std::string, NumberPairs>>& words,
                                    KeyHelp help) const {
  std::vector<std::string> names;
  for (const auto& [name, pairs] : words) names.push_back(name);
  declare({.name = std::string(key),
           .type = "choice or list of pairs",
           .fallback = "[]",
           .allowed = listed(names),
           .choices = names},
          help);
  if (holds_text(key)) {
    const std::string name = choice(key, {}, names);
    return std::ranges::find(words, name, &std::pair<std::string, NumberPairs>::first)->second;
  }
  NumberPairs out;
  visit_list(*state_, path_to(key), "pairs of numbers", [&](const toml::node& element) {
    const toml::array* pair = element.as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_number() || !(*pair)[1].is_number()) return false;
    out.emplace_back(number_of((*pair)[0]), number_of((*pair)[1]));
    return true;
  });
  return out;
}

bool JobTable::has(std::string_view key) const {
  return read(*state_, path_to(key)) != nullptr;
}

bool JobTable::holds_table(std::string_view key) const {
  const toml::node* node = read(*state_, path_to(key));
  return node != nullptr && node->is_table();
}

bool JobTable::holds_list(std::string_view key) const {
  const toml::node* node = read(*state_, path_to(key));
  return node != nullptr && node->is_array();
}

bool JobTable::holds_text(std::string_view key) const {
  const toml::node* node = read(*state_, path_to(key));
  return node != nullptr && node->is_string();
}

JobTable JobTable::table(std::string_view key, KeyHelp help) const {
  if (!help.text.empty()) declare({.name = std::string(key), .type = "table", .fallback = "{}"}, help);
  auto path = path_to(key);
  const auto* node = read(*state_, path);
  if (node != nullptr && !node->is_table()) refuse_type(*state_, path, "a table", *node);
  return JobTable(state_, std::move(path));
}

std::vector<JobTable> JobTable::tables(std::string_view key) const {
  std::vector<JobTable> found;
  auto path = path_to(key);
  visit_list(*state_, path, "tables", [&](const toml::node& element) {
    path.push_back(element_key(found.size()));
    state_->read[path];  // a key that no reader reads is unknown there
    found.push_back(JobTable(state_, path));
    path.pop_back();
    return element.is_table();
  });
  return found;
}

std::vector<std::string> JobTable::keys() const {
  const auto* node = state_->find(path_);
  if (node == nullptr) return {};
  std::vector<JobPath> paths;
  for (const auto& [key, ignored] : *node->as_table()) paths.push_back(path_to(key.str()));
  sort_by_place(*state_, paths);
  std::vector<std::string> out;
  for (const auto& path : paths) out.push_back(path.back());
  return out;
}

std::vector<std::string> JobTable::tables_with(std::string_view key) const {
  std::vector<std::string> names = keys();
  std::erase_if(names, [&](const std::string& name) {
    return state_->find(JobTable(state_, path_to(name)).path_to(key)) == nullptr;
  });
  return names;
}

std::string JobTable::name() const {
  return label_of(path_);
}

void JobTable::fail(std::string_view key, const std::string& message) const {
  state_->fail(path_to(key), message);
}

void JobTable::fail_among(std::initializer_list<std::string_view> keys, const std::string& message) const {
  for (const auto key : keys) {
    if (state_->find(path_to(key)) != nullptr) fail(key, message);
  }
  fail(*keys.begin(), message);
}

}  // namespace maestro
