// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_state.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/toml_text.hpp"

namespace maestro {
namespace {

bool is_prefix(const JobPath& prefix, const JobPath& path) {
  return prefix.size() <= path.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

constexpr char element_mark = '\0';

constexpr std::size_t longest_label = 240;  // bytes, in a message

bool stands_before(const JobPlace& a, const JobPlace& b) {
  return std::tie(a.overridden, a.line, a.column) < std::tie(b.overridden, b.line, b.column);
}

}  // namespace

std::string element_key(std::size_t index) {
  return std::string(1, element_mark) + std::to_string(index);
}

const toml::node* child_of(const toml::node& node, const std::string& key) {
  if (const auto* table = node.as_table()) return table->get(key);
  const auto* list = node.as_array();
  if (list == nullptr || key.empty() || key.front() != element_mark) return nullptr;
  std::size_t index = 0;
  std::from_chars(key.data() + 1, key.data() + key.size(), index);
  return list->get(index);
}

const toml::node* JobState::find(const JobPath& path) const {
  const toml::node* node = &root;
  for (const auto& key : path) {
    node = child_of(*node, key);
    if (node == nullptr) return nullptr;
  }
  return node;
}

JobPlace JobState::place_of(const JobPath& path) const {
  for (std::size_t i = overrides.size(); i-- > 0;) {
    if (is_prefix(overrides[i].path, path)) return {overrides[i].place, true, i, 0};
  }
  JobPlace place{name};
  const toml::node* node = &root;
  JobPath reached;
  for (const auto& key : path) {
    const toml::node* child = child_of(*node, key);
    if (child == nullptr) break;
    reached.push_back(key);
    const auto* table = node->as_table();
    const auto begin = (table == nullptr ? child->source() : table->find(key)->first.source()).begin;
    place = {name + ":" + std::to_string(begin.line), false, begin.line, begin.column};
    node = child;
  }
  if (reached.empty() || place.line != 0) return place;
  // A table without a line was created around an overridden key.
  for (std::size_t i = overrides.size(); i-- > 0;) {
    if (is_prefix(reached, overrides[i].path)) return {overrides[i].place, true, i, 0};
  }
  return JobPlace{name};
}

void JobState::fail(const JobPath& path, const std::string& message) const {
  throw JobError(place_of(path).text + ": " + printable(label_of(path), longest_label) + ": " + message);
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    throw JobError(name + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) +
                   ": not valid TOML: " + printable(error.description()));
  }
}

std::string label_of(const JobPath& path) {
  std::string label;
  for (const auto& key : path) {
    if (!key.empty() && key.front() == element_mark) {
      label += '[' + key.substr(1) + ']';
      continue;
    }
    if (!label.empty()) label += '.';
    label += is_bare_key(key) ? key : '"' + printable(key) + '"';
  }
  return label;
}

void sort_by_place(const JobState& state, std::vector<JobPath>& paths) {
  std::stable_sort(paths.begin(), paths.end(), [&](const JobPath& a, const JobPath& b) {
    return stands_before(state.place_of(a), state.place_of(b));
  });
}

std::string listed(std::span<const std::string> names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string describe(const toml::node& node) {
  if (const auto* text = node.as_string()) return "a string \"" + printable(text->get()) + '"';
  if (const auto* integer = node.as_integer()) return "the integer " + std::to_string(integer->get());
  if (const auto* number = node.as_floating_point()) return "the number " + number_text(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "the flag true" : "the flag false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

}  // namespace maestro
