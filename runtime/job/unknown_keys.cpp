// SPDX-License-Identifier: Apache-2.0
// JobTable::finish(): finds the first key of a file that no reader has read, and the nearest key that a reader has.
#include <algorithm>
#include <optional>

#include "runtime/core/nearest_name.hpp"
#include "runtime/job/job_state.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {
namespace {

/// Returns the full name of `key` in another table that has it: the key was written under the wrong heading.
std::optional<std::string> found_elsewhere(const JobState& state, const std::string& key) {
  for (const auto& [table, keys] : state.read) {
    if (!keys.contains(key)) continue;
    JobPath path = table;
    path.push_back(key);
    return label_of(path);
  }
  return std::nullopt;
}

std::string unknown_text(const JobState& state, const JobPath& path) {
  const JobPath table(path.begin(), path.end() - 1);
  std::vector<std::string> known;
  if (const auto keys = state.read.find(table); keys != state.read.end()) {
    known.assign(keys->second.begin(), keys->second.end());
  }
  const std::string message = state.find(path)->is_table() ? "unknown table; " : "unknown key; ";
  if (const auto near = nearest_name(path.back(), known)) return message + "did you mean '" + *near + "'?";
  if (const auto other = found_elsewhere(state, path.back())) return message + "did you mean '" + *other + "'?";
  if (known.empty()) return message + "no keys are allowed here";
  return message + "known here: " + listed(known);
}

void collect_unknown(const JobState& state, const toml::table& table, JobPath& path, std::vector<JobPath>& unknown);

/// Collects unknown keys from the tables of a list that a reader has read as tables.
void collect_unknown(const JobState& state, const toml::array& list, JobPath& path, std::vector<JobPath>& unknown) {
  for (std::size_t at = 0; at < list.size(); ++at) {
    path.push_back(element_key(at));
    if (list[at].is_table() && state.read.contains(path)) collect_unknown(state, *list[at].as_table(), path, unknown);
    path.pop_back();
  }
}

/// Collects the paths of all keys that no reader has read. An unknown table counts once, without its keys.
void collect_unknown(const JobState& state, const toml::table& table, JobPath& path, std::vector<JobPath>& unknown) {
  const auto read_keys = state.read.find(path);
  for (const auto& [key, node] : table) {
    const bool known = read_keys != state.read.end() && read_keys->second.contains(std::string(key.str()));
    path.emplace_back(key.str());
    if (!known) {
      unknown.push_back(path);
    } else if (node.is_table()) {
      collect_unknown(state, *node.as_table(), path, unknown);
    } else if (node.is_array()) {
      collect_unknown(state, *node.as_array(), path, unknown);
    }
    path.pop_back();
  }
}

}  // namespace

void JobTable::finish() const {
  const auto* node = state_->find(path_);
  if (node == nullptr) return;
  std::vector<JobPath> unknown;
  JobPath path = path_;
  collect_unknown(*state_, *node->as_table(), path, unknown);
  if (unknown.empty()) return;
  sort_by_place(*state_, unknown);
  state_->fail(unknown.front(), unknown_text(*state_, unknown.front()));
}

}  // namespace maestro
