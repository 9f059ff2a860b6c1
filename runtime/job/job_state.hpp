// SPDX-License-Identifier: Apache-2.0
// Private to this folder: the parsed document that JobDocument and JobTable share, and the places of its keys.
#pragma once

#include <toml++/toml.h>

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/job_key.hpp"

namespace maestro {

/// The keys from the root to a value; element_key() after a list's key denotes an element of a list of tables.
using JobPath = std::vector<std::string>;

/// Returns a key that begins with a character that only quoted keys of a file can begin with.
[[nodiscard]] std::string element_key(std::size_t index);
/// Returns the child of a table or list; null if absent.
[[nodiscard]] const toml::node* child_of(const toml::node& node, const std::string& key);

struct JobOverride {
  std::string place;  ///< text for messages: "--set a.b=c"
  JobPath path;
};

/// The place of a key, comparable in reading order: the file first, then the overrides.
struct JobPlace {
  std::string text;  ///< "job.toml:3", "--set a.b=c", or "job.toml" for an absent key
  bool overridden = false;
  std::size_t line = 0;  ///< line in the file, or the override's position
  std::size_t column = 0;
};

struct JobState {
  std::string name;
  toml::table root;
  std::vector<JobOverride> overrides;
  std::map<JobPath, std::set<std::string>> read;  ///< keys that a reader has read, by table
  std::vector<JobKey> declared;                   ///< keys read with a type, each once, in the order of reading

  /// Returns the node at `path`; null if absent.
  [[nodiscard]] const toml::node* find(const JobPath& path) const;
  /// Returns the place of a key; for an absent key, the place of the innermost existing table around it.
  [[nodiscard]] JobPlace place_of(const JobPath& path) const;
  [[noreturn]] void fail(const JobPath& path, const std::string& message) const;
};

/// Parses `text`; every error becomes a JobError of one line.
[[nodiscard]] toml::table parse_toml(std::string_view text, const std::string& name);
/// Puts an override "a.b=c" into the document.
void apply_override(JobState& state, const std::string& text);

/// Returns the full name, such as "student.lr" or "hosts[2].count"; keys that are not bare are quoted.
[[nodiscard]] std::string label_of(const JobPath& path);
/// Sorts paths into reading order.
void sort_by_place(const JobState& state, std::vector<JobPath>& paths);
/// Returns the names with commas between them.
[[nodiscard]] std::string listed(std::span<const std::string> names);
/// Returns a description such as 'a string "eight"', 'the integer 3' or 'a list'.
[[nodiscard]] std::string describe(const toml::node& node);

}  // namespace maestro
