// SPDX-License-Identifier: Apache-2.0
// The report of a run, as JSON: users and tests read the file afterwards.
//
// {"plan": {...}, "steps": [{"section", "step", "loss", "ce", "kl", "grad_norm", "lr", "step_ms"}],
//  "validation": {"teacher_ce", "distilled_ce", "plain_ce"}, "samples": {"read", "trained", "distinct"},
//  "transfers": {"provider", "bytes", "writes"}, "throughput": {"samples_per_s", "tokens_per_s"}, "max_rss_mb",
//  "memory": {"estimated_mb", "used_mb", "ranks": [...], "processes": [...], "devices": [...]},
//  "rehearsal": {"steps", "step_ms", "measured_step_ms", ...}}
// and all members that are `set`. "plan" and "steps" are always present; the others if available.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// A number, flag, string, list, or map of numbers or strings. Doubles are printed so that they read back bitwise
/// equal, floats as the double of the same value, NaN and infinities as null.
class ReportValue {
 public:
  using Held =
      std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                   std::vector<std::string>, std::map<std::string, double>, std::map<std::string, std::string>>;
  ReportValue(bool value) : held_(value) {}                                           // NOLINT: implicit by design
  ReportValue(std::integral auto value) : held_(static_cast<std::int64_t>(value)) {}  // NOLINT
  ReportValue(std::floating_point auto value) : held_(static_cast<double>(value)) {}  // NOLINT
  ReportValue(const char* value) : held_(std::string(value)) {}                       // NOLINT
  ReportValue(std::string_view value) : held_(std::string(value)) {}                  // NOLINT
  ReportValue(std::string value) : held_(std::move(value)) {}                         // NOLINT
  ReportValue(std::vector<std::int64_t> value) : held_(std::move(value)) {}           // NOLINT
  ReportValue(std::vector<double> value) : held_(std::move(value)) {}                 // NOLINT
  ReportValue(std::vector<std::string> value) : held_(std::move(value)) {}            // NOLINT
  ReportValue(std::map<std::string, double> value) : held_(std::move(value)) {}       // NOLINT
  ReportValue(std::map<std::string, std::string> value) : held_(std::move(value)) {}  // NOLINT
  [[nodiscard]] const Held& held() const { return held_; }

 private:
  Held held_;
};

/// An optimizer step of a section.
struct StepRow {
  std::string section;
  StepId step;
  std::map<std::string, double> metrics;  ///< loss, ce, kl, grad_norm, lr, step_ms, ...; unknown metrics are omitted
};
/// Returns {"section", "step", name of a metric: value, ...}.
[[nodiscard]] std::string row_of(const StepRow& row);

/// Calls the function with each row of a list in turn, a JSON object on one line.
using RowSource = std::function<Status(const std::function<Status(std::string_view json)>& add)>;

/// One thread at a time.
class Report {
 public:
  Report();
  Report(Report&&) noexcept;
  Report& operator=(Report&&) noexcept;
  ~Report();

  /// Sets the member at a dotted path such as "validation.plain_ce", creating objects on the way. A later value of a
  /// path replaces an earlier value.
  void set(std::string_view path, const ReportValue& value);
  /// Sets a value that is JSON already. Fails on text that is not JSON.
  Status set_json(std::string_view path, std::string_view json);
  /// Appends an object to the list at a dotted path, e.g. "plan.lanes".
  void add_row(std::string_view path, const std::vector<std::pair<std::string, ReportValue>>& row);
  /// Sets the rows of a member such as "steps", read when the report is written: they need not fit in memory.
  void set_rows(const std::string& name, RowSource rows);

  /// Publishes the complete file; creates its folder if missing. Errors name the path and the reason; errors of a
  /// RowSource are returned.
  Status write(const std::filesystem::path& path) const;

 private:
  struct Members;
  std::unique_ptr<Members> members_;  // keeps the JSON library out of this header
};

}  // namespace maestro
