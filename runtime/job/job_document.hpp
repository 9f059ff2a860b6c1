// SPDX-License-Identifier: Apache-2.0
// A job file with its overrides, parsed. Reading goes through JobTable; see job_reader.hpp for the tables.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// Overrides are "a.b=c" as given to `--set`. The value is read as TOML, and as a plain string when it is not TOML, so
/// `train.out=runs/a` needs no quotes. Later overrides win. An overridden key need not be in the file. A table
/// replaces a table of the file with all its keys; an empty table there is refused.
class JobDocument {
 public:
  /// Throws JobError(not_found) if the file cannot be read; otherwise as `parse`.
  static JobDocument load(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});
  /// `name` stands for the file in error messages. Throws JobError for text that is not TOML, with line and column, for
  /// a malformed override, for a document over 1 MiB, for a line over 8 KiB and for more than 64 levels of tables and
  /// lists.
  static JobDocument parse(std::string text, std::string name, const std::vector<std::string>& overrides = {});

  [[nodiscard]] JobTable root() const;
  /// Returns a document with the same values, whose overrides do not change this one.
  [[nodiscard]] JobDocument copy() const;
  /// Adds an override, for tables that were taken before as well. Throws JobError as `parse`.
  void override_with(const std::string& setting);
  /// Throws for a key or table that no reader has read; see JobTable::finish.
  void finish() const;
  /// Returns the document with the overrides in place, as TOML; it parses back to the same values.
  [[nodiscard]] std::string to_toml() const;
  /// Returns every value that the document and the overrides set, as TOML, by its full key: "student.lr".
  [[nodiscard]] std::map<std::string, std::string> settings() const;
  /// Returns every key that a reader has read with a type so far, each once, in the order of reading (JK-1).
  [[nodiscard]] std::vector<JobKey> keys() const;

 private:
  explicit JobDocument(std::shared_ptr<JobState> state);
  std::shared_ptr<JobState> state_;  // shared with tables that may outlive the document
};

}  // namespace maestro
