// SPDX-License-Identifier: Apache-2.0
// The keys of sections that a planner chooses, and their values as settings. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "apps/plan/layout_keys.hpp"
#include "apps/plan/layout_search.hpp"

namespace maestro {

/// Returns a key's value as TOML; not for "devices".
[[nodiscard]] std::string value_of(const SectionLayout& layout, const std::string& key);
/// Returns the only key that differs between two layouts; empty: none, or several.
[[nodiscard]] std::string only_difference(const SectionLayout& a, const SectionLayout& b);
/// Returns "[\"cpu:0\", \"cpu:1\"]".
[[nodiscard]] std::string devices_text(const std::string& kind, const std::vector<int>& devices);
/// Returns a list as TOML, over several lines if it is long, as the length of a job's lines is limited.
[[nodiscard]] std::string list_text(const std::vector<std::string>& values);
/// Returns "[0, 1]".
[[nodiscard]] std::string list_text(const std::vector<std::int64_t>& numbers);

/// Returns the experts of a layer in the section; 0: it has none.
[[nodiscard]] std::int64_t experts_of(const ResolvedJob& job, const std::string& section);

/// The keys that are chosen for a job: keys that it lacks, and varied keys. A value.
class ChosenKeys {
 public:
  /// `varied`: "teacher.micro_batch", "micro_batch" of all sections, or "all". Throws JobError for a key that all
  /// sections lack, and if no key is left to choose. `job` is not kept.
  ChosenKeys(const ResolvedJob& job, const std::set<std::string>& varied);

  /// Returns the sections of the job in the order of its graph, sources left out.
  [[nodiscard]] const std::vector<std::string>& sections() const { return sections_; }
  /// Returns the chosen keys of a section.
  [[nodiscard]] const std::set<std::string>& of(const std::string& section) const { return free_.at(section); }
  /// Returns the section whose devices a section has by the job, which states its replicas; empty: none.
  [[nodiscard]] const std::string& devices_of(const std::string& section) const { return devices_of_.at(section); }
  /// Returns the layouts among `possible` that have the job's values of all keys that are not chosen, each once.
  [[nodiscard]] std::vector<SectionLayout> standing(const std::string& section,
                                                    std::vector<SectionLayout> possible) const;
  /// Returns the chosen keys of a section as for --set; `devices`: the TOML of that key.
  [[nodiscard]] std::vector<std::string> settings(const std::string& section, const SectionLayout& layout,
                                                  const std::string& devices) const;
  /// Returns the same settings with `devices` last, even if it is not a chosen key, and with replicas of a section that
  /// has another's devices.
  [[nodiscard]] std::vector<std::string> settings_on(const std::string& section, const SectionLayout& layout,
                                                     const std::string& devices) const;

 private:
  std::vector<std::string> sections_;
  std::map<std::string, std::set<std::string>> free_;
  std::map<std::string, SectionLayout> given_;
  std::map<std::string, std::string> devices_of_;
};

}  // namespace maestro
