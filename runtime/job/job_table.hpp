// SPDX-License-Identifier: Apache-2.0
// Typed, checked reading of one table of a job file. Every accessor notes the key it was asked for; `finish` then
// refuses whatever the file holds beyond that, so a misspelt key can never be silently ignored.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

struct JobState;

/// Allowed integers, both ends included.
struct Range {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

/// Allowed numbers; an open end is itself refused. Infinities and NaN always are.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;
};

/// One table of a job file; cheap to copy. A table the file lacks reads as an empty one. All errors are JobErrors of
/// one line that starts with the place: `job.toml:7: student.micro_batch: ...` or `--set student.lr=x: student.lr:
/// ...`. Copies share the document, which they keep alive; one thread at a time.
class JobTable {
 public:
  /// The integer at `key`, or `fallback` (not checked against `allowed`) when the key is absent.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback, Range allowed = {}) const;
  /// A number; an integer in the file is one too.
  [[nodiscard]] double number(std::string_view key, double fallback, NumberRange allowed = {}) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, std::string fallback) const;
  /// A string out of `allowed`.
  [[nodiscard]] std::string choice(std::string_view key, std::string fallback,
                                   const std::vector<std::string>& allowed) const;
  /// A list of strings.
  [[nodiscard]] std::vector<std::string> texts(std::string_view key, std::vector<std::string> fallback) const;

  /// Whether the file or an override holds `key`. Counts as asking for it.
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] JobTable table(std::string_view key) const;
  /// Keys present, in the order of the file, those only in overrides last. Does not count as asking.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// Full name, e.g. "student"; empty for the root.
  [[nodiscard]] std::string name() const;

  /// Refuses the first key, here or in tables read from here, that nobody asked for. Call after all reading is done.
  void finish() const;

  /// Throws a JobError that names `key` of this table and its place, or the table's place when the key is absent.
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// As `fail`, about the first of `keys` that is present (else the first): for checks across keys with defaults.
  [[noreturn]] void fail_among(std::initializer_list<std::string_view> keys, const std::string& message) const;

 private:
  friend class JobDocument;
  JobTable(std::shared_ptr<JobState> state, std::vector<std::string> path);
  [[nodiscard]] std::vector<std::string> path_to(std::string_view key) const;

  std::shared_ptr<JobState> state_;  // shared with the document and its other tables, which may be dropped in any order
  std::vector<std::string> path_;    // from the root; empty for the root itself
};

}  // namespace maestro
