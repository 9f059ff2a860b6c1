// SPDX-License-Identifier: Apache-2.0
// The keys of job files by table, as their readers declare them (JK-1): the constructor runs every reader of this
// program and its plug-ins on a job that gives only the keys without a default.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "actors/served/served_type.hpp"
#include "runtime/job/job_key.hpp"
#include "sections/registry.hpp"

namespace maestro {

/// A job with only the keys without a default. Tables that sections read of their neighbours have the neighbours'
/// default names.
inline constexpr const char* smallest_job = R"(app = "distillation"
[data]
path = "corpus.txt"
[teacher]
[vision]
[audio]
[decoder]
[plain]
)";

/// Keys of one reader.
struct KeyGroup {
  std::string name;     ///< "train", "section", "projector"
  std::string heading;  ///< "[train]", "every section"
  std::string purpose;  ///< one line
  std::vector<JobKey> keys;
};

/// Returns the keys of a group with their defaults and meanings, a line each, below its heading.
[[nodiscard]] std::string group_text(const KeyGroup& group);

/// A section that a bundled app composes.
struct ReferenceSection {
  std::string name;  ///< "teacher"
  std::string app;
  std::string type;
};

class JobReference {
 public:
  /// `registry` holds the section types, also of plug-ins.
  explicit JobReference(const SectionRegistry& registry = program_sections());

  /// Returns top level, fixed tables, keys of every section, then keys of section types; each key is in one group.
  [[nodiscard]] const std::vector<KeyGroup>& groups() const { return groups_; }
  [[nodiscard]] const std::vector<ReferenceSection>& sections() const { return sections_; }

  [[nodiscard]] std::vector<std::string> section_types() const;
  /// Returns all keys by their full names: "app", "train.steps", "student.lr".
  [[nodiscard]] std::vector<std::string> keys() const;

  /// Returns the groups of a table: a fixed table, a section of a bundled app, a section type or a group.
  /// Empty for an unknown table.
  [[nodiscard]] std::vector<const KeyGroup*> groups_of(std::string_view table) const;
  /// Returns the key "train.steps", "student.lr" or "app"; null when unknown.
  [[nodiscard]] const JobKey* find(std::string_view key) const;
  /// Returns a sentence about an unknown key or table, with the nearest valid name.
  [[nodiscard]] std::string unknown(const std::string& wanted) const;

 private:
  void add_tables();
  void add_section_groups(const SectionRegistry& registry);
  void add_bundled_sections();
  /// Returns all table names, sections first.
  [[nodiscard]] std::vector<std::string> tables() const;

  std::vector<KeyGroup> groups_;
  std::map<std::string, std::vector<std::string>, std::less<>> types_;  // by section type: names of its groups
  std::vector<ReferenceSection> sections_;
};

}  // namespace maestro
