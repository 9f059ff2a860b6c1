// SPDX-License-Identifier: Apache-2.0
// Typed, checked reading of a job file's table. Every accessor records the key that it reads; `finish` then refuses
// every other key of the file, so a misspelt key is never silently ignored. Accessors with a type also record default,
// range and help text; JobDocument::keys() makes the reference from them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/job/job_key.hpp"

namespace maestro {

struct JobState;

using NumberPairs = std::vector<std::pair<double, double>>;

/// Allowed integers, both ends included.
struct Range {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

/// A table of a job file; cheap to copy. A table that the file lacks reads as empty. All errors are JobErrors of one
/// line that starts with the place: `job.toml:7: student.micro_batch: ...` or `--set student.lr=x: student.lr: ...`.
/// Copies share the document and keep it alive; one thread at a time.
class JobTable {
 public:
  /// Returns the integer at `key`, or `fallback` (not checked against `allowed`) if the key is absent.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback, Range allowed = {},
                                     KeyHelp help = {}) const;
  /// Reads as `integer`; each of `words` may stand for an integer.
  [[nodiscard]] std::int64_t integer_or_word(std::string_view key, std::int64_t fallback, Range allowed,
                                             const std::vector<std::pair<std::string, std::int64_t>>& words,
                                             KeyHelp help = {}) const;
  /// Returns a number; an integer in the file is a number too.
  [[nodiscard]] double number(std::string_view key, double fallback, NumberRange allowed = {}, KeyHelp help = {}) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback, KeyHelp help = {}) const;
  [[nodiscard]] std::string text(std::string_view key, std::string fallback, KeyHelp help = {}) const;
  /// Returns a string from `allowed`, for sets of names that another module defines.
  [[nodiscard]] std::string choice(std::string_view key, std::string fallback, const std::vector<std::string>& allowed,
                                   KeyHelp help = {}) const;
  /// Returns the value whose name is at `key`. `names` holds the names of all values from 0 on, in order.
  template <class Enum>
  requires std::is_enum_v<Enum>
  [[nodiscard]] Enum choice(std::string_view key, Enum fallback, std::span<const std::string_view> names,
                            KeyHelp help = {}) const {
    const std::vector<std::string> allowed(names.begin(), names.end());
    const std::string name = choice(key, allowed[static_cast<std::size_t>(fallback)], allowed, help);
    std::size_t index = 0;
    while (allowed[index] != name) ++index;
    return static_cast<Enum>(index);
  }
  /// Returns a list of strings; a single string in the file counts as a list.
  [[nodiscard]] std::vector<std::string> names(std::string_view key, const std::string& fallback,
                                               KeyHelp help = {}) const;
  /// Returns a list of numbers; empty if the key is absent.
  [[nodiscard]] std::vector<double> numbers(std::string_view key, NumberRange allowed = {}, KeyHelp help = {}) const;
  /// Reads as `numbers`; a single number in the file counts as a list.
  [[nodiscard]] std::vector<double> number_or_numbers(std::string_view key, double fallback, NumberRange allowed = {},
                                                      KeyHelp help = {}) const;
  /// Returns a list of integers; empty if the key is absent.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key, Range allowed = {}, KeyHelp help = {}) const;
  /// Returns a list of number pairs; each of `words` may stand for a list; empty if the key is absent.
  [[nodiscard]] NumberPairs pairs_or_word(std::string_view key,
                                          const std::vector<std::pair<std::string, NumberPairs>>& words,
                                          KeyHelp help = {}) const;
  /// Returns a list of strings.
  [[nodiscard]] std::vector<std::string> texts(std::string_view key, std::vector<std::string> fallback,
                                               KeyHelp help = {}) const;

  /// Returns whether the file or an override holds `key`. Counts as reading the key.
  [[nodiscard]] bool has(std::string_view key) const;
  /// Returns the table at `key`. With `help`, the reference has an entry for the table.
  [[nodiscard]] JobTable table(std::string_view key, KeyHelp help = {}) const;
  /// Returns the tables of the list at `key`, [[key]] in the file; empty if the key is absent.
  [[nodiscard]] std::vector<JobTable> tables(std::string_view key) const;
  /// Returns whether `key` is present and a table. Counts as reading the key.
  [[nodiscard]] bool holds_table(std::string_view key) const;
  /// Returns whether `key` is present and a list. Counts as reading the key.
  [[nodiscard]] bool holds_list(std::string_view key) const;
  /// Returns whether `key` is present and a text. Counts as reading the key.
  [[nodiscard]] bool holds_text(std::string_view key) const;
  /// Returns the present keys in the order of the file, then keys only in overrides. Does not count as reading.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// Returns the tables here that hold `key`, in the same order. Does not count as reading.
  [[nodiscard]] std::vector<std::string> tables_with(std::string_view key) const;
  /// Returns the full name, e.g. "student"; empty for the root.
  [[nodiscard]] std::string name() const;

  /// Throws for the first key that no reader has read, here or in tables read from here. Call after all reading.
  void finish() const;

  /// Throws a JobError that names `key` of this table and its place, or the table's place if the key is absent.
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// Throws as `fail` for the first of `keys` that is present, else for the first: for checks across keys with
  /// defaults.
  [[noreturn]] void fail_among(std::initializer_list<std::string_view> keys, const std::string& message) const;

 private:
  friend class JobDocument;
  JobTable(std::shared_ptr<JobState> state, std::vector<std::string> path);
  [[nodiscard]] std::vector<std::string> path_to(std::string_view key) const;
  /// Records `key` with its table's name for the reference.
  void declare(JobKey key, KeyHelp help) const;

  std::shared_ptr<JobState>
      state_;                      // shared with the document and its other tables, which may be destroyed in any order
  std::vector<std::string> path_;  // from the root; empty for the root itself
};

}  // namespace maestro
