// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/job_state.hpp"

namespace maestro {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Returns the keys of "a.b.c"; nothing if a key is empty or not bare.
std::optional<JobPath> split_path(std::string_view text) {
  JobPath path;
  while (true) {
    const auto dot = text.find('.');
    const auto key = trimmed(text.substr(0, dot));
    const bool bare = std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (key.empty() || !bare) return std::nullopt;
    path.emplace_back(key);
    if (dot == std::string_view::npos) return path;
    text.remove_prefix(dot + 1);
  }
}

/// Returns a table with a single key "value": the text as TOML, else as a string.
toml::table parse_value(std::string_view text) {
  try {
    auto parsed = toml::parse("value = " + std::string(text));
    // A line break in the text must not add further keys: with several keys, the text is a string.
    if (parsed.size() == 1) return parsed;
  } catch (const toml::parse_error&) {
    // Not TOML: a bare word such as a path.
  }
  return toml::table{{"value", std::string(text)}};
}

toml::table& innermost_table(JobState& state, const JobOverride& override_) {
  toml::table* table = &state.root;
  for (std::size_t i = 0; i + 1 < override_.path.size(); ++i) {
    auto* node = table->get(override_.path[i]);
    if (node == nullptr) {
      node = &table->insert_or_assign(override_.path[i], toml::table{}).first->second;
    }
    if (!node->is_table()) {
      const JobPath outer(override_.path.begin(), override_.path.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      throw JobError(override_.place + ": " + printable(label_of(outer)) + ": expected a table, but it is " +
                     describe(*node));
    }
    table = node->as_table();
  }
  return *table;
}

/// Refuses an empty table that replaces another: it would silently lose all keys.
void check_keeps_keys(const JobOverride& override_, const toml::node* was, const toml::node& is) {
  const bool tables = was != nullptr && was->is_table() && is.is_table();
  if (!tables || was->as_table()->empty() || !is.as_table()->empty()) return;
  JobPath lost = override_.path;
  lost.emplace_back(was->as_table()->begin()->first.str());
  const std::string first = printable(label_of(lost));
  const std::size_t more = was->as_table()->size() - 1;
  throw JobError(override_.place + ": the empty table would lose " + first +
                 (more == 0 ? "" : " and " + std::to_string(more) + " more") + "; set single keys, as in --set " +
                 first + "=..., or give a table with all keys");
}

}  // namespace

void apply_override(JobState& state, const std::string& text) {
  const std::string place = "--set " + printable(text);
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    throw JobError(place + ": expected a key and a value, as in --set train.steps=100");
  }
  auto path = split_path(std::string_view(text).substr(0, equals));
  if (!path) {
    throw JobError(place + ": \"" + printable(text.substr(0, equals)) +
                   "\" is not a key; write it as in --set train.steps=100");
  }
  const JobOverride override_{place, std::move(*path)};
  auto value = parse_value(trimmed(std::string_view(text).substr(equals + 1)));
  auto& table = innermost_table(state, override_);
  check_keeps_keys(override_, table.get(override_.path.back()), *value.get("value"));
  // Erased first, so that the key loses its place in the file.
  table.erase(override_.path.back());
  value.get("value")->visit([&](auto& node) { table.insert(override_.path.back(), std::move(node)); });
  state.overrides.push_back(override_);
}

}  // namespace maestro
