// SPDX-License-Identifier: Apache-2.0
// Private to this folder: the parsed document behind JobDocument and JobTable, and where its keys came from.
#pragma once

#include <toml++/toml.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

using JobPath = std::vector<std::string>;

struct JobOverride {
  std::string place;  ///< as shown to the user: "--set a.b=c"
  JobPath path;
};

/// Where a key stands, comparable in reading order: the file first, then the overrides.
struct JobPlace {
  std::string text;  ///< "job.toml:3", "--set a.b=c", or "job.toml" for what stands nowhere
  bool overridden = false;
  std::size_t line = 0;  ///< of the file, or the override's position
  std::size_t column = 0;
};

struct JobState {
  std::string name;
  toml::table root;
  std::vector<JobOverride> overrides;
  std::map<JobPath, std::set<std::string>> asked;  ///< by table: the keys someone asked for

  /// Null when absent.
  [[nodiscard]] const toml::node* find(const JobPath& path) const;
  /// Place of a key; of the innermost table around it that exists when it is absent.
  [[nodiscard]] JobPlace place_of(const JobPath& path) const;
  [[noreturn]] void fail(const JobPath& path, const std::string& message) const;
};

/// Parses with every error turned into a one-line JobError.
[[nodiscard]] toml::table parse_toml(std::string_view text, const std::string& name);
/// Puts an override "a.b=c" into the document.
void apply_override(JobState& state, const std::string& text);

/// "student.lr"; keys that are not bare are quoted.
[[nodiscard]] std::string label_of(const JobPath& path);
/// 'a string "eight"', 'the integer 3', 'a list', ...
[[nodiscard]] std::string describe(const toml::node& node);

}  // namespace maestro
